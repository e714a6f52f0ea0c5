-- lib/integrity: does all that is stored of a job say the same, and if not, what is put right? It stands on base.lua and queue.lua.
-- luacheck: push ignore 211
local UNHEARD = 30000                       -- ms from the last sign of life, for a job that runs and whose lease is lost
local UNFINISHED = {scheduled = true, queued = true, running = true}
local LEASED = {'worker', 'claimed_at', 'heartbeat_at', 'rank', 'progress', 'cancel_requested_at'}

local only_looks, wrote, wrongs             -- is nothing to be written? has something been? what is wrong with the one at hand
local function begin_with(how) only_looks = how == 'look' end
local function next_one() wrongs = {} end
local function verdict() return wrongs[1] and table.concat(wrongs, ', ') or 'sound' end
local function set_out() if not wrote then begin() wrote = true end end
-- What is wrong, and the command that mends it.
local function amend(word, ...)
  if wrongs[#wrongs] ~= word then wrongs[#wrongs + 1] = word end
  if only_looks or not ... then return end
  set_out()
  call(...)
end

-- A score, if it is a moment, or below `most`; any other, which somebody else has written, counts as none.
local function stands_at(score, most) local n = tonumber(score or nil) return n and n >= 0 and n < (most or 1e14) and score or nil end

-- What the hash of a job that is none is: nil for none at all, "lost" for what nobody can run or keep, "foreign" for another's.
local function remains(hash)
  local fields = peek('HLEN', hash)
  if fields == 0 then return nil end
  return type(fields) == 'number' and 'lost' or 'foreign'
end

-- The state that a job must be in: what its hash wrongs, or where that is lost, or cannot be, what its other fields speak of.
local function state_of(job, hash)
  local v = call('HMGET', hash, 'token', 'worker', 'attempt', 'tries_left', 'claimed_at', 'rank')
  local held = v[1] and v[2] and numeral(v[3]) and numeral(v[4]) and numeral(v[5]) and numeral(v[6])
  if job.state == 'queued' or sizes[job.state or ''] and (job.state ~= 'running' or held) then return job.state end
  if call('HEXISTS', hash, 'result') == 1 then return 'completed' end
  return call('HEXISTS', hash, 'finished_at') == 1 and 'dead' or 'queued'
end

-- A job by its id, and the state that it must be in; or nil, and what its hash is ("odd": a header that cannot be). Its queue is
-- looked at.
local function inspect(id)
  local job, hash = load(id), key('job:', id)
  local spec = job.spec or peek('HGET', hash, 'spec')
  local rules = type(spec) == 'string' and read_header(spec)
  if not rules or not is_name(rules.queue) then return nil, remains(hash) end
  if unfit_rule(string.match(rules.header, '^%S+ %S+ %d+ ?(.*)$')) then return nil, 'odd' end   -- who wrote it may know what it meant
  local state = state_of(job, hash)
  local waits = state == 'queued' or state == 'scheduled'
  if waits and not string.find(spec, '\n', 1, true) and call('HEXISTS', hash, 'payload') == 0 then return nil, 'lost' end
  look_at(rules.queue)
  job.hash, job.rules, job.spec = hash, rules, spec
  return job, state
end

-- The number of the next job that is queued: where it was lost, one that is higher than any before.
local function numbered(seq)
  if not seq then call('HSET', base, 'seq', stamp) end
  return next_seq(1)
end

-- The score of a job in the structure that lacks it: its place is at the end, its moment the one that its other fields know.
local function score_of(job, state, seq)
  local rules, over, heard, ended_as = job.rules, unpack(call('HMGET', job.hash, 'finished_at', 'heartbeat_at', 'ended'))
  if state == 'queued' then return rank(rules.priority, numbered(seq)) end
  if state == 'scheduled' then
    return string.match(ended_as or '', '^%S+ scheduled (%d+)$') or rules.at or digits(rules.submitted_at + (rules.delay or 0))
  elseif state == 'running' then            -- who holds it may live, and say so; else it comes back as any lost lease does
    local last = (tonumber(heard or nil) or job.claimed_at) + UNHEARD
    return digits(rules.timeout == 'none' and last or math.min(last, job.claimed_at + rules.timeout + GRACE))
  end
  return digits((tonumber(over or nil) or now) + math.max(state == 'completed' and 60000 or KEEP_DEAD, rules.retention))
end

-- The structures in which a job may be: those of the partition, its queue, and the one in which it was seen.
local function shelves(job, seen_in)
  local found = {'scheduled', 'running', 'completed', 'dead', 'cancelled'}
  local queue = job and 'queue:' .. job.rules.queue
  if queue then found[#found + 1] = queue end
  if string.find(seen_in, '^queue:') and seen_in ~= queue then found[#found + 1] = seen_in end
  return found
end

-- Have a job (of which there is none: nil) be in one structure, the one that its state names. Its score there, before.
local function shelve(id, job, state, seen_in, seq)
  local home, score = job and (state == 'queued' and 'queue:' .. job.rules.queue or state), nil
  for _, shelf in ipairs(shelves(job, seen_in)) do
    local stands = call('ZSCORE', key(shelf), id)
    if shelf == home then score = stands elseif stands then amend('stray', 'ZREM', key(shelf), id) end
  end
  if not job then return end
  score = stands_at(score, state == 'queued' and 9e15)
  if state ~= job.state then
    amend('restated', 'HSET', job.hash, 'state', state)
    if job.state == 'running' then amend('restated', 'HDEL', job.hash, unpack(LEASED)) end
  end
  local numbers = {'attempt', 'tries_left'}
  for i, value in ipairs(call('HMGET', job.hash, unpack(numbers))) do
    if value and not numeral(value) then amend('restated', 'HDEL', job.hash, numbers[i]) end
  end
  if not score then
    local ids = {id}
    amend('placed ' .. state .. ' ' .. job.rules.submitted_at)
    if not only_looks then
      set_out()
      call('ZADD', key(home), score_of(job, state, seq), id)
      event(ids, state, 'repaired')
      if state == 'queued' then wake(job.rules.queue) end
    end
  end
  if not only_looks then job.state = state end
  return score
end

-- Have a job that is not finished hold its key, if nobody else does, and one that is gone or finished hold none.
local function relock(id, job, state, seen_in)
  local rules = job and job.rules
  local named, locks = rules and rules.key and 'key:' .. rules.queue .. '|' .. rules.key, {}
  local own = named and not rules.window and named      -- one with a window ends by itself
  if own then locks[1] = own end
  if seen_in ~= own and string.find(seen_in, '^key:') then locks[#locks + 1] = seen_in end
  for _, lock in ipairs(locks) do
    local holder = peek('GET', key(lock))
    if type(holder) == 'table' then
      amend('foreign')
    elseif lock == own and UNFINISHED[state] then
      if not holder or holder ~= id and not UNFINISHED[load(holder).state] then amend('locked', 'SET', key(lock), id) end
    elseif holder == id and not (lock == named and UNFINISHED[state]) and call('PTTL', key(lock)) == -1 then
      amend('unlocked', 'DEL', key(lock))
    end
  end
end

-- What a partition knows of its last number and its last token must not be less than what its jobs do: queues would not be first
-- come, first served, and a token not the highest.
local function recall(job, state, score, seq)
  local at = tonumber(state == 'queued' and score or state == 'running' and job.rank or nil)
  at = at and at % 17592186044416
  if at and at > (seq or 0) then amend('numbered', 'HSET', base, 'seq', digits(math.max(at, seq and 0 or now))) end
  local head = string.match(job.token or '', '^(%d+)%.')
  local fence = head and tonumber(call('HGET', base, 'fence') or nil)
  if head and tonumber(head) > (fence or 0) then amend('numbered', 'HSET', base, 'fence', head) end
end

-- All of one job.
local function check_job(id, seen_in)
  local job, state = inspect(id)
  if state == 'odd' then return amend('foreign') end         -- where it stands, too, is left alone
  local seq = tonumber(call('HGET', base, 'seq') or nil)     -- it may have been raised for the one before
  local score = shelve(id, job, state, seen_in, seq)
  relock(id, job, state, seen_in)
  if not job and state then amend(state, state == 'lost' and 'DEL' or nil, key('job:', id)) loaded[id] = nil end
  if not job then return end
  local queue = look_at(job.rules.queue)
  if UNFINISHED[state] and not queue.settings then
    amend('listed', 'HSET', key('queues'), queue.name, '')
    queue.settings = ''                     -- told once for all its jobs
  end
  recall(job, state, score, seq)
end
-- luacheck: pop
