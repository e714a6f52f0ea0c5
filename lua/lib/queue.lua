-- lib/queue: a queue's settings, wake-up list, backlog, counts; operators' verbs. It needs base.
-- luacheck: push ignore 211
-- A queue by its name, read before anything is written to it. `jobs` and `bytes` are what this call has
-- stored in it.
local WAITING = 1000                        -- names in a pattern's wake-up list
local LISTENS = 15000                       -- ms for which a claim keeps a pattern live, and its list
local queues = {}
local function get_queue(name)
  local queue = queues[name]
  if not queue then
    queue = {name = name, length = call('ZCARD', key('queue:' .. name)),
      wakeups = call('LLEN', key('wake:' .. name)),
      settings = call('HGET', key('queues'), name), jobs = 0, bytes = 0}
    queue.by_turns = queue.settings and string.find(queue.settings, ' flow=1', 1, true)
    queues[name] = queue
  end
  return queue
end

-- The score of a job in its queue: by priority, then in the order of `seq`.
local function rank(priority, seq) return (100 - priority) * 17592186044416 + seq end

-- The fields of a job that never change: the header, with a payload of up to 1 KiB after it. A longer payload
-- is a field of its own, which only claim reads.
local function as_spec(header, payload)
  if #payload <= 1024 then return 'spec', header .. '\n' .. payload end
  return 'spec', header, 'payload', payload
end

-- Settings are "<revision> <verb> [name=value …]": jobs= and bytes= are limits, on_dead= is the task that
-- reports deaths, paused= is the moment (ms) of the pause, flow=1 says that lib/flow serves it.
local function setting(settings, name) return string.match(settings or '', ' ' .. name .. '=(%d+)') end
local function limits(queue)
  return (string.gsub(string.match(queue.settings or '', '^%d+ %S+(.*)$') or '', ' paused=%d+', ''))
end

-- The first n jobs of a queue, each with its score; none while the queue is paused.
local function first_jobs(name, n)
  if n <= 0 or setting(get_queue(name).settings, 'paused') then return {} end
  return call('ZRANGE', key('queue:' .. name), 0, n - 1, 'WITHSCORES')
end

-- Call `act` with the wake-up list of each live pattern that the name matches.
local function for_patterns(name, act)
  for prefix, ends in string.gmatch(patterns or '', '(%S*)%* (%d+)') do
    if tonumber(ends) > now and string.sub(name, 1, #prefix) == prefix then act(key('wake:' .. prefix .. '*')) end
  end
end

-- Put the queue's name on the wake-up lists of its patterns, unless they have it: this unblocks one idle
-- worker of each.
local function wake_patterns(queue)
  if queue.told then return end
  queue.told = true
  for_patterns(queue.name, function(list)
    local has = peek('LLEN', list)
    if type(has) == 'number' and has < WAITING and not peek('LPOS', list, queue.name) then
      peek('RPUSH', list, queue.name)
      peek('PEXPIRE', list, LISTENS)
    end
  end)
end

-- Put one element on the queue's wake-up list: it unblocks one idle worker. A second element would wake two
-- workers, and the jobs of a paused queue wait.
local function wake(name)
  local queue = get_queue(name)
  if patterns and not setting(queue.settings, 'paused') then wake_patterns(queue) end
  if queue.wakeups > 0 or setting(queue.settings, 'paused') then return end
  call('LPUSH', key('wake:' .. name), '1')
  queue.wakeups = 1
end

-- The edges of a job that has ended, or of a workflow (by "/" and its id), are to be settled from a moment on: a member of
-- `scheduled`, ">" before the id, which is no job. `unsettled` has the same ids, so that these members can be counted.
local function mark_unsettled(id, at)
  call('ZADD', key('scheduled'), at, '>' .. id)
  peek('SADD', key('unsettled'), id)
end
local function unmark_unsettled(id)
  call('ZREM', key('scheduled'), '>' .. id)
  peek('SREM', key('unsettled'), id)
end

-- Add to the number of a queue's running jobs. It is never below 0, which would hide jobs that run.
local function add_running(name, by)
  if add(key('backlog'), name .. ' running', by) < 0 then call('HDEL', key('backlog'), name .. ' running') end
end

-- The ms since a job was first due.
local function waiting_time(rules)
  return now - (rules.at and math.max(rules.at, rules.submitted_at) or rules.submitted_at + (rules.delay or 0))
end

-- Count a duration (ms) under the bound of its class, and in the sum.
local function observe(seen, took)
  local bound = took <= 5 and 5 or took <= 20 and 20 or took <= 100 and 100 or took <= 500 and 500
    or took <= 1000 and 1000
    or took <= 2000 and 2000 or took <= 5000 and 5000 or took <= 15000 and 15000 or took <= 60000 and 60000
    or took <= 300000 and 300000 or took <= 900000 and 900000 or took <= 3600000 and 3600000 or 'inf'
  seen[bound], seen.ms = (seen[bound] or 0) + 1, (seen.ms or 0) + math.max(0, took)
end

-- Add to a queue's counts, which are for people. When very many queues are counted, new ones are counted
-- together under `*`.
local function tally(name, what, seen)
  local counts = key('counts')
  if crowded and call('HEXISTS', counts, name .. ' wait ms') == 0 then name = '*' end
  for class, n in pairs(seen) do add(counts, name .. ' ' .. what .. ' ' .. class, n) end
end

-- A queue's totals since the beginning: jobs finished, attempts ended, and the ms that these took.
local function totals_of(name)
  local fields = {name .. ' dead jobs', name .. ' cancelled jobs', name .. ' completed ms',
    name .. ' failed ms'}
  for class in string.gmatch('5 20 100 500 1000 2000 5000 15000 60000 300000 900000 3600000 inf', '%S+') do
    fields[#fields + 1], fields[#fields + 2] = name .. ' completed ' .. class, name .. ' failed ' .. class
  end
  local counted, completed, failed = call('HMGET', key('counts'), unpack(fields)), 0, 0
  for i = 1, #fields do counted[i] = tonumber(counted[i] or 0) or 0 end
  for i = 5, #fields, 2 do completed, failed = completed + counted[i], failed + counted[i + 1] end
  return completed + counted[1] + counted[2], completed + failed, counted[3] + counted[4]
end

-- The changes that this call makes to queues' numbers, job by job; `sum_up` writes each number once.
local changes = {}
local function add_change(name, what, by)
  local sums = changes[name] or {}
  changes[name], sums[what] = sums, (sums[what] or 0) + by
end
local function sum_up()
  for name, sums in pairs(changes) do
    for what, by in pairs(sums) do
      if what == 'running' then add_running(name, by) else tally(name, what, {jobs = by}) end
    end
  end
end

-- Add to a queue's backlog: its waiting and running jobs, and the bytes of their payloads. The queue's limits
-- apply to these. When no job is left, the numbers are deleted, so an error in them does not last.
local function backlog(name, jobs, bytes)
  if add(key('backlog'), name .. ' jobs', jobs) <= 0 then
    call('HDEL', key('backlog'), name .. ' jobs', name .. ' bytes', name .. ' running')
  elseif bytes ~= 0 then                    -- Redis 7.0 rejects -0
    add(key('backlog'), name .. ' bytes', bytes)
  end
end

-- The refusal if a queue's limits do not allow one more job with so many bytes of payload, or a job that is there to
-- grow by so many; else nil.
local function full(queue, bytes, is_there)
  for name, more in pairs({jobs = is_there and 0 or 1, bytes = bytes}) do
    local limit = setting(queue.settings, name)
    local has = limit
      and queue[name] + (tonumber(call('HGET', key('backlog'), queue.name .. ' ' .. name) or 0) or 0)
    if limit and has + more > tonumber(limit) and not (is_there and more <= 0) then
      local never = name == 'bytes' and more > tonumber(limit) and ', so that one of ' .. more
        .. ' can never fit' or ''
      return 'QUEUE_FULL queue ' .. queue.name .. ' may hold ' .. limit .. ' ' .. name .. ' and has ' .. has
        .. never
    end
  end
end

-- An operator's verb names the revision that the operator saw: attempts plus operators' verbs accepted.
-- Returns the answer if nothing is to be done: a refusal, or the first answer when the same call is repeated;
-- nil if the verb may be carried out. A verb with arguments has them after a colon; one of an order for many jobs has
-- the order after an @, so that only the order itself repeats it.
local function order_answer(job, verb, revision, ...)
  if not job.state then
    return refusal('NOT_FOUND', 'no job ' .. tostring(job.id)
      .. ': it never existed, or was deleted (retention, erase)')
  end
  local current = (job.attempt or 0) + (job.ops or 0)
  local asked, seen, answer = string.match(job.op or '', '^(%S+) (%S+) (.+)$')
  if asked == verb and seen == revision and current == seen + 1 then return answer end
  if tostring(current) ~= revision then
    return refusal('CHANGED', 'job ' .. job.id .. ' is at revision ' .. current .. ', not '
      .. tostring(revision) .. ': read it again')
  end
  for _, state in ipairs({...}) do if job.state == state then return nil end end
  return refusal('WRONG_STATE', 'job ' .. job.id .. ' is ' .. job.state .. ': ' .. string.match(verb, '^%a+')
    .. ' takes one that is ' .. table.concat({...}, ' or ') .. (verb == 'erase' and ': cancel it first' or ''))
end

-- Record that an operator's verb was carried out, and its answer.
local function record_order(job, verb, revision, answer)
  call('HSET', job.hash, 'ops', (job.ops or 0) + 1, 'op', verb .. ' ' .. revision .. ' ' .. answer)
  return answer
end

-- An operator's verb on a queue names the revision that the operator saw. Returns the answer if nothing is to
-- be done: a refusal, or `answer` (if any) when the same call is repeated; nil if the verb may be carried
-- out.
local function settings_answer(queue, verb, revision, answer)
  local current, last = string.match(queue.settings or '', '^(%d+) (%S+)')
  local seen = string.match(revision or '', '^%d+$') or '-1'
  if answer and last == verb and tonumber(current) == seen + 1 then return answer end
  if (current or '0') == revision then return nil end
  local words = ' is at revision ' .. (current or 0) .. ', not ' .. tostring(revision) .. ': read it again'
  return refusal('CHANGED', 'queue ' .. queue.name .. words)
end

-- Store a queue's settings under the next revision.
local function save_settings(queue, verb, revision, words)
  queue.settings = string.format('%.0f ', revision + 1) .. verb .. words
  queue.by_turns = string.find(words, ' flow=1', 1, true)
  call('HSET', key('queues'), queue.name, queue.settings)
end
-- luacheck: pop
