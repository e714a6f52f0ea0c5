-- lib/integrity: check whether the keys of a job agree, and put it where its state says. It needs base, queue and
-- flow.
-- luacheck: push ignore 211
-- ms after the last heartbeat: the new lease end of a running job that lost its lease
local UNHEARD = 30000
local UNFINISHED = {scheduled = true, queued = true, running = true}

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

-- The first field of a job that no script writes so; nil if all are valid. It is only reported: no other field
-- says for certain what it should be.
local function broken_field(job)
  local token, worker, claimed_at, at_rank, attempt, tries_left = unpack(call('HMGET', job.hash,
    'token', 'worker', 'claimed_at', 'rank', 'attempt', 'tries_left'))
  if attempt and not whole_number(attempt) then return 'attempt' end
  if tries_left and not whole_number(tries_left) then return 'tries_left' end
  local held = token and worker and attempt and tries_left and whole_number(claimed_at)
    and whole_number(at_rank)
  if job.state == 'running' and not held then return 'lease' end
  local waits = job.state == 'queued' or job.state == 'scheduled'
  local has_payload = string.find(job.spec, '\n', 1, true) or call('HEXISTS', job.hash, 'payload') == 1
  return waits and not has_payload and 'payload' or nil
end

-- A job by its id; or nil and, if something is stored in its place, the fault that this is. Its queue and its
-- lock are read as well: a key of a wrong type raises here, before the first write.
local function inspect(id)
  local fields = peek('HLEN', key('job:', id))
  if type(fields) ~= 'number' then return nil, 'foreign' end
  if fields == 0 then return nil end
  local job, spec = load(id), call('HGET', key('job:', id), 'spec')
  local rules = spec and read_header(spec) or {}
  -- Another version may know the rule
  if not is_name(rules.queue) or invalid_rule(string.match(rules.header, '^%S+ %S+ %d+ ?(.*)$')) then
    return nil, 'broken spec'
  end
  if job.state ~= 'queued' and not sizes[job.state or ''] then return nil, 'broken state' end
  get_queue(rules.queue)
  check_flow(job)
  if rules.key then call('GET', key('key:' .. rules.queue .. '|' .. rules.key)) end
  return job
end

-- The next number in order of queueing. If `seq` was lost, it starts again above all earlier numbers.
local function numbered(seq)
  if not seq then call('HSET', base, 'seq', stamp) end
  return next_seq(1)
end

-- The score of a job in the structure that lacks it: the end of its queue, or the moment that its other
-- fields have.
local function score_of(job, seq)
  local rules, state = job.rules, job.state
  local over, heard, ended_as = unpack(call('HMGET', job.hash, 'finished_at', 'heartbeat_at', 'ended'))
  if state == 'queued' then return rank(rules.priority, numbered(seq)) end
  if state == 'scheduled' then
    if rules.on_failure and call('HEXISTS', job.hash, 'needs') == 1 then return NEVER end
    local seen, moved_to = string.match(job.op or '', '^reschedule:%S+ (%d+) scheduled (%d+)$')
    if seen and seen + 1 == (job.attempt or 0) + (job.ops or 0) then return moved_to end
    return string.match(ended_as or '', '^%S+ scheduled (%d+)$') or rules.at
      or digits(rules.submitted_at + (rules.delay or 0))
  elseif state == 'running' then            -- a live holder extends the lease; otherwise it expires as usual
    local last = (tonumber(heard or nil) or job.claimed_at) + UNHEARD
    return digits(rules.timeout == 'none' and last or math.min(last, job.claimed_at + rules.timeout + GRACE))
  end
  return digits((tonumber(over or nil) or now) +
    math.max(state == 'completed' and 60000 or KEEP_DEAD, rules.retention))
end

-- Make a job a member of only the structure that its state names, of those that may contain it: the five of
-- the partition, its queue, and the one in which it was seen. Returns its earlier score there.
local function check_structure(job, seen_in, seq)
  local queue = (job.rules.group and 'grouped:' or 'queue:') .. job.rules.queue
  local home = job.state == 'queued' and queue or job.state
  local found = {'scheduled', 'running', 'completed', 'dead', 'cancelled', queue}
  if (string.find(seen_in, '^queue:') or string.find(seen_in, '^grouped:')) and seen_in ~= queue then found[#found + 1] = seen_in end
  local score
  for _, structure in ipairs(found) do
    local stands = call('ZSCORE', key(structure), job.id)
    if structure == home then
      score = stands
    elseif stands then
      fix('stray', 'ZREM', key(structure), job.id)
    end
  end
  score = valid_score(score, job.state == 'queued' and 9e15)
  if score then return score end
  fix('placed ' .. job.state .. ' ' .. job.rules.submitted_at)
  if only_looks then return end
  begin_once()
  local ids, state, group, at = {job.id}, job.state, job.rules.group, score_of(job, seq)
  call('ZADD', key(home), at, job.id)
  event(ids, state, 'repaired')
  if state == 'queued' and group then
    call('ZADD', key('waiting:', job.rules.queue .. '|' .. group), at, job.id)
    flow(job.rules.queue, true):arrived({[group] = true})
  elseif state == 'queued' then
    wake(job.rules.queue)
  end
end

-- A queued job stands in the set of its group, with the score of its queue, and a running one that took a place has it.
local function check_flow_of(job)
  local queue, group = job.rules.queue, job.rules.group
  local places, waiting = key('places:' .. queue), group and key('waiting:' .. queue .. '|' .. group)
  local score = job.state == 'queued' and call('ZSCORE', key('grouped:' .. queue), job.id) or false
  local lacks_place = job.state == 'queued' and not score        -- which check_structure has reported
  if waiting and not lacks_place and call('ZSCORE', waiting, job.id) ~= score then
    if score then fix('grouped', 'ZADD', waiting, score, job.id) else fix('grouped', 'ZREM', waiting, job.id) end
    if not only_looks then flow(queue, true):arrived({[group] = true}) end
  end
  local holds = job.state == 'running' and job.held ~= nil
  if holds ~= (call('HGET', places, job.id) == (group or '')) then
    fix('held')
    if only_looks then return end
    begin_once()
    if not holds then
      call('HDEL', job.hash, 'held')
      return flow(queue, true):give_back(job.id, group or '')
    end
    call('HSET', places, job.id, group or '')
    if group then call('SADD', places .. '|' .. group, job.id) end
  end
end

-- Make an unfinished job hold its lock if no other job does, and a finished or missing job (nil) hold none.
local function check_lock(id, job, seen_in)
  local rules, state = job and job.rules, job and job.state
  local named = rules and rules.key and 'key:' .. rules.queue .. '|' .. rules.key
  local own = named and not rules.window and named      -- a lock with a window expires by itself
  local locks = {}
  if own then locks[1] = own end
  if seen_in ~= own and string.find(seen_in, '^key:') then locks[#locks + 1] = seen_in end
  for _, lock in ipairs(locks) do
    local holder = call('GET', key(lock))
    if lock == own and UNFINISHED[state] then
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
local function check_counters(job, score, seq)
  local at = tonumber(job.state == 'queued' and score or job.state == 'running' and job.rank or nil)
  at = at and at % 17592186044416
  if at and at > (seq or 0) then
    fix('numbered', 'HSET', base, 'seq', digits(math.max(at, seq and 0 or now)))
  end
  local head = string.match(job.token or '', '^(%d+)%.')
  local fence = head and tonumber(call('HGET', base, 'fence') or nil)
  if head and tonumber(head) > (fence or 0) then fix('numbered', 'HSET', base, 'fence', head) end
end

-- A structure or lock names a job that does not exist: remove the name. `gone`: the job was not finished.
local function check_missing(id, seen_in)
  local queue = string.find(seen_in, '^queue:') or string.find(seen_in, '^grouped:')
  if (queue or sizes[seen_in]) and call('ZSCORE', key(seen_in), id) then
    fix((queue or UNFINISHED[seen_in]) and 'gone' or 'stray', 'ZREM', key(seen_in), id)
  end
  check_lock(id, nil, seen_in)
end

-- Check all that is stored of one job.
local function check_job(id, seen_in)
  local job, fault = inspect(id)
  if fault then return fix(fault) end
  if not job then return check_missing(id, seen_in) end
  local seq = tonumber(call('HGET', base, 'seq') or nil)     -- the item before may have raised it
  local score = check_structure(job, seen_in, seq)
  check_flow_of(job)
  check_lock(id, job, seen_in)
  local queue = get_queue(job.rules.queue)
  if UNFINISHED[job.state] and not queue.settings then
    fix('listed', 'HSET', key('queues'), queue.name, '')
    queue.settings = ''                     -- reported once for all its jobs
  end
  check_counters(job, score, seq)
  local field = broken_field(job)
  if field then fix('broken ' .. field) end
end
-- luacheck: pop
