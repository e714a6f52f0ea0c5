-- lib/queue: what a queue is beside its jobs: its settings, marker, backlog and counts. It stands on base.lua.
-- luacheck: push ignore 211
-- A queue by its name, looked at before anything is written there. `jobs` and `bytes` are what this call has stored in it.
local queues = {}
local function look_at(name)
  local queue = queues[name]
  if not queue then
    queue = {name = name, length = call('ZCARD', key('queue:' .. name)), markers = call('LLEN', key('wake:' .. name)),
      settings = call('HGET', key('queues'), name), jobs = 0, bytes = 0}
    queues[name] = queue
  end
  return queue
end

-- A job by its id, and its queue looked at, so that the job may be moved there.
local function load_movable(id)
  local job = load(id)
  if job.state then look_at(job.rules.queue) end
  return job
end

-- Where a job stands in its queue: by priority, then first come, first served.
local function rank(priority, seq) return (100 - priority) * 17592186044416 + seq end

-- The fields of a job that never change: its header and, up to 1 KiB, its payload in one. A longer payload is a field of its own,
-- read by claim alone.
local function as_spec(header, payload)
  if #payload <= 1024 then return 'spec', header .. '\n' .. payload end
  return 'spec', header, 'payload', payload
end

-- Settings are "<revision> <verb> [name=value …]": jobs= and bytes= are limits, paused= is since when.
local function setting(settings, name) return string.match(settings or '', ' ' .. name .. '=(%d+)') end
local function limits(queue)
  return (string.gsub(string.match(queue.settings or '', '^%d+ %S+(.*)$') or '', ' paused=%d+', ''))
end

-- The first n jobs of a queue, each with its rank; none while it is paused.
local function heads(name, n)
  if n <= 0 or setting(look_at(name).settings, 'paused') then return {} end
  return call('ZRANGE', key('queue:' .. name), 0, n - 1, 'WITHSCORES')
end

-- One marker wakes one idle worker; a second one beside it would wake two, and a paused queue has work for none.
local function wake(name)
  local queue = look_at(name)
  if queue.markers > 0 or setting(queue.settings, 'paused') then return end
  call('LPUSH', key('wake:' .. name), '1')
  queue.markers = 1
end

-- The baton: what a claim leaves behind, in the queues named from `first` on, wakes the next worker; where nothing is left, a
-- marker would wake one in vain.
local function pass_on(names, first)
  for i = first, #names do
    if call('ZCARD', key('queue:' .. names[i])) > 0 then
      wake(names[i])
    elseif look_at(names[i]).markers > 0 then
      call('DEL', key('wake:' .. names[i]))
    end
  end
end

-- So many more of a queue's jobs run now. Never fewer than none: that would hide those that do.
local function run(name, by)
  if add(key('backlog'), name .. ' running', by) < 0 then call('HDEL', key('backlog'), name .. ' running') end
end

-- How many ms ago a job was to run for the first time.
local function waited(rules)
  return now - (rules.at and math.max(rules.at, rules.submitted_at) or rules.submitted_at + (rules.delay or 0))
end

-- One that took so many ms: into the class of its bound, and into the sum.
local function observe(seen, took)
  local bound = took <= 5 and 5 or took <= 20 and 20 or took <= 100 and 100 or took <= 500 and 500 or took <= 1000 and 1000
    or took <= 2000 and 2000 or took <= 5000 and 5000 or took <= 15000 and 15000 or took <= 60000 and 60000
    or took <= 300000 and 300000 or took <= 900000 and 900000 or took <= 3600000 and 3600000 or 'inf'
  seen[bound], seen.ms = (seen[bound] or 0) + 1, (seen.ms or 0) + math.max(0, took)
end

-- What people look at: how often what happened in a queue. When there are very many queues, new ones are counted together.
local function tally(name, what, seen)
  local counts = key('counts')
  if crowded and call('HEXISTS', counts, name .. ' wait ms') == 0 then name = '*' end
  for class, n in pairs(seen) do add(counts, name .. ' ' .. what .. ' ' .. class, n) end
end

-- What became of a queue's jobs since the beginning: how many are finished, how many attempts have ended, and the ms these took.
local function past(name)
  local fields = {name .. ' dead jobs', name .. ' cancelled jobs', name .. ' completed ms', name .. ' failed ms'}
  for class in string.gmatch('5 20 100 500 1000 2000 5000 15000 60000 300000 900000 3600000 inf', '%S+') do
    fields[#fields + 1], fields[#fields + 2] = name .. ' completed ' .. class, name .. ' failed ' .. class
  end
  local counted, completed, failed = call('HMGET', key('counts'), unpack(fields)), 0, 0
  for i = 1, #fields do counted[i] = tonumber(counted[i] or 0) or 0 end
  for i = 5, #fields, 2 do completed, failed = completed + counted[i], failed + counted[i + 1] end
  return completed + counted[1] + counted[2], completed + failed, counted[3] + counted[4]
end

-- What this call changes in a queue's numbers, one job after the other; `sum_up` writes it down, once for each number.
local changes = {}
local function change(name, what, by)
  local sums = changes[name] or {}
  changes[name], sums[what] = sums, (sums[what] or 0) + by
end
local function sum_up()
  for name, sums in pairs(changes) do
    for what, by in pairs(sums) do
      if what == 'running' then run(name, by) else tally(name, what, {jobs = by}) end
    end
  end
end

-- What waits and runs in a queue, in jobs and in bytes of their payloads: this is what its limits are about. Where nothing is
-- left, all begins anew, whatever went wrong before.
local function backlog(name, jobs, bytes)
  if add(key('backlog'), name .. ' jobs', jobs) <= 0 then
    call('HDEL', key('backlog'), name .. ' jobs', name .. ' bytes', name .. ' running')
  elseif bytes ~= 0 then                    -- Redis 7.0 takes no -0
    add(key('backlog'), name .. ' bytes', bytes)
  end
end

-- Why a queue has no room for one more job with so many bytes of payload; nil when it has.
local function full(queue, bytes)
  for name, more in pairs({jobs = 1, bytes = bytes}) do
    local limit = setting(queue.settings, name)
    local has = limit and queue[name] + (tonumber(call('HGET', key('backlog'), queue.name .. ' ' .. name) or 0) or 0)
    if limit and has + more > tonumber(limit) then
      local never = name == 'bytes' and more > tonumber(limit) and ', so that one of ' .. more .. ' can never fit' or ''
      return 'QUEUE_FULL queue ' .. queue.name .. ' may hold ' .. limit .. ' ' .. name .. ' and has ' .. has .. never
    end
  end
end

-- An operator's verb on a queue names the revision it saw, as one on a job does. Answers what to say at once: a refusal, or
-- `answer` (if any) to the same order sent again; nil when it may be carried out.
local function outdated(queue, verb, revision, answer)
  local current, last = string.match(queue.settings or '', '^(%d+) (%S+)')
  local seen = string.match(revision or '', '^%d+$') or '-1'
  if answer and last == verb and tonumber(current) == seen + 1 then return answer end
  if (current or '0') == revision then return nil end
  local words = ' is at revision ' .. (current or 0) .. ', not ' .. tostring(revision) .. ': look again'
  return refusal('CHANGED', 'queue ' .. queue.name .. words)
end

-- Write a queue's settings down, as the verb leaves them.
local function arrange(queue, verb, revision, words)
  queue.settings = string.format('%.0f ', revision + 1) .. verb .. words
  call('HSET', key('queues'), queue.name, queue.settings)
end
-- luacheck: pop
