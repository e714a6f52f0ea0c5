-- lib/integrity: find out whether all that is stored of a job agrees, and repair it. It needs base and queue.
-- luacheck: push ignore 211
-- ms after the last heartbeat: the new lease end of a running job that lost its lease
local UNHEARD = 30000
local UNFINISHED = {scheduled = true, queued = true, running = true}
local LEASED = {'worker', 'claimed_at', 'heartbeat_at', 'rank', 'progress', 'cancel_requested_at'}

local only_looks                            -- report only, write nothing?
local wrote                                 -- has this call written something?
local wrongs                                -- the faults of the present item
local function set_mode(how) only_looks = how == 'look' end
local function start_item() wrongs = {} end
local function verdict() return wrongs[1] and table.concat(wrongs, ', ') or 'sound' end
local function begin_once() if not wrote then begin() wrote = true end end
-- Note a fault, and run the command that repairs it, if one is given.
local function fix(word, ...)
  if wrongs[#wrongs] ~= word then wrongs[#wrongs + 1] = word end
  if only_looks or not ... then return end
  begin_once()
  call(...)
end

-- The score if it is valid: from 0 to below `most` (14 digits unless given); else nil.
local function valid_score(score, most)
  local n = tonumber(score or nil)
  return n and n >= 0 and n < (most or 1e14) and score or nil
end

-- What is stored in place of a job: nil for nothing, "lost" for a hash that is not a usable job, "foreign"
-- for another type.
local function leftover(hash)
  local fields = peek('HLEN', hash)
  if fields == 0 then return nil end
  return type(fields) == 'number' and 'lost' or 'foreign'
end

-- The state that a job must be in: the one in its hash or, if that is missing or impossible, the one that its
-- other fields imply.
local function state_of(job, hash)
  local v = call('HMGET', hash, 'token', 'worker', 'attempt', 'tries_left', 'claimed_at', 'rank')
  local held = v[1] and v[2] and whole_number(v[3]) and whole_number(v[4]) and whole_number(v[5])
    and whole_number(v[6])
  if job.state == 'queued' or sizes[job.state or ''] and (job.state ~= 'running' or held) then
    return job.state
  end
  if call('HEXISTS', hash, 'result') == 1 then return 'completed' end
  return call('HEXISTS', hash, 'finished_at') == 1 and 'dead' or 'queued'
end

-- A job by its id, and the state that it must be in; or nil, and what is stored instead ("odd": its header
-- has an invalid rule). Its queue is read as well.
local function inspect(id)
  local job, hash = load(id), key('job:', id)
  local spec = job.spec or peek('HGET', hash, 'spec')
  local rules = type(spec) == 'string' and read_header(spec)
  if not rules or not is_name(rules.queue) then return nil, leftover(hash) end
  -- Another version may know the rule
  if invalid_rule(string.match(rules.header, '^%S+ %S+ %d+ ?(.*)$')) then return nil, 'odd' end
  local state = state_of(job, hash)
  local waits = state == 'queued' or state == 'scheduled'
  if waits and not string.find(spec, '\n', 1, true) and call('HEXISTS', hash, 'payload') == 0 then
    return nil, 'lost'
  end
  get_queue(rules.queue)
  job.hash, job.rules, job.spec = hash, rules, spec
  return job, state
end

-- The next number in order of queueing. If `seq` was lost, it starts again above all earlier numbers.
local function numbered(seq)
  if not seq then call('HSET', base, 'seq', stamp) end
  return next_seq(1)
end

-- The score of a job in the structure that lacks it: the end of its queue, or the moment that its other
-- fields have.
local function score_of(job, state, seq)
  local rules = job.rules
  local over, heard, ended_as = unpack(call('HMGET', job.hash, 'finished_at', 'heartbeat_at', 'ended'))
  if state == 'queued' then return rank(rules.priority, numbered(seq)) end
  if state == 'scheduled' then
    return string.match(ended_as or '', '^%S+ scheduled (%d+)$') or rules.at
      or digits(rules.submitted_at + (rules.delay or 0))
  elseif state == 'running' then            -- a live holder extends the lease; otherwise it expires as usual
    local last = (tonumber(heard or nil) or job.claimed_at) + UNHEARD
    return digits(rules.timeout == 'none' and last or math.min(last, job.claimed_at + rules.timeout + GRACE))
  end
  return digits((tonumber(over or nil) or now) +
    math.max(state == 'completed' and 60000 or KEEP_DEAD, rules.retention))
end

-- The structures that may contain a job: those of the partition, its queue, and the one in which it was seen.
local function structures_of(job, seen_in)
  local found = {'scheduled', 'running', 'completed', 'dead', 'cancelled'}
  local queue = job and 'queue:' .. job.rules.queue
  if queue then found[#found + 1] = queue end
  if string.find(seen_in, '^queue:') and seen_in ~= queue then found[#found + 1] = seen_in end
  return found
end

-- Make a job (or nil) a member of only the structure that its state names. Returns its earlier
-- score there.
local function check_structure(id, job, state, seen_in, seq)
  local home = job and (state == 'queued' and 'queue:' .. job.rules.queue or state)
  local score
  for _, structure in ipairs(structures_of(job, seen_in)) do
    local stands = call('ZSCORE', key(structure), id)
    if structure == home then score = stands elseif stands then fix('stray', 'ZREM', key(structure), id) end
  end
  if not job then return end
  score = valid_score(score, state == 'queued' and 9e15)
  if state ~= job.state then
    fix('restated', 'HSET', job.hash, 'state', state)
    if job.state == 'running' then fix('restated', 'HDEL', job.hash, unpack(LEASED)) end
  end
  local numbers = {'attempt', 'tries_left'}
  for i, value in ipairs(call('HMGET', job.hash, unpack(numbers))) do
    if value and not whole_number(value) then fix('restated', 'HDEL', job.hash, numbers[i]) end
  end
  if not score then
    local ids = {id}
    fix('placed ' .. state .. ' ' .. job.rules.submitted_at)
    if not only_looks then
      begin_once()
      call('ZADD', key(home), score_of(job, state, seq), id)
      event(ids, state, 'repaired')
      if state == 'queued' then wake(job.rules.queue) end
    end
  end
  if not only_looks then job.state = state end
  return score
end

-- Make an unfinished job hold its lock if no other job does, and a finished or missing job hold none.
local function check_lock(id, job, state, seen_in)
  local rules = job and job.rules
  local named = rules and rules.key and 'key:' .. rules.queue .. '|' .. rules.key
  local own = named and not rules.window and named      -- a lock with a window expires by itself
  local locks = {}
  if own then locks[1] = own end
  if seen_in ~= own and string.find(seen_in, '^key:') then locks[#locks + 1] = seen_in end
  for _, lock in ipairs(locks) do
    local holder = peek('GET', key(lock))
    if type(holder) == 'table' then
      fix('foreign')
    elseif lock == own and UNFINISHED[state] then
      if not holder or holder ~= id and not UNFINISHED[load(holder).state] then
        fix('locked', 'SET', key(lock), id)
      end
    elseif holder == id and not (lock == named and UNFINISHED[state]) and call('PTTL', key(lock)) == -1 then
      fix('unlocked', 'DEL', key(lock))
    end
  end
end

-- Raise `seq` and `fence` to at least those of the jobs. Otherwise queues would not be served in order, and a
-- new token not be the highest.
local function check_counters(job, state, score, seq)
  local at = tonumber(state == 'queued' and score or state == 'running' and job.rank or nil)
  at = at and at % 17592186044416
  if at and at > (seq or 0) then
    fix('numbered', 'HSET', base, 'seq', digits(math.max(at, seq and 0 or now)))
  end
  local head = string.match(job.token or '', '^(%d+)%.')
  local fence = head and tonumber(call('HGET', base, 'fence') or nil)
  if head and tonumber(head) > (fence or 0) then fix('numbered', 'HSET', base, 'fence', head) end
end

-- Check all that is stored of one job.
local function check_job(id, seen_in)
  local job, state = inspect(id)
  if state == 'odd' then return fix('foreign') end         -- its structure is left alone, too
  local seq = tonumber(call('HGET', base, 'seq') or nil)     -- the item before may have raised it
  local score = check_structure(id, job, state, seen_in, seq)
  check_lock(id, job, state, seen_in)
  if not job then
    if state then
      fix(state, state == 'lost' and 'DEL' or nil, key('job:', id))
      loaded[id] = nil
    end
    return
  end
  local queue = get_queue(job.rules.queue)
  if UNFINISHED[state] and not queue.settings then
    fix('listed', 'HSET', key('queues'), queue.name, '')
    queue.settings = ''                     -- reported once for all its jobs
  end
  check_counters(job, state, score, seq)
end
-- luacheck: pop
