-- complete: the work is done; accept the results, keep what is worth keeping, and forget a few old jobs.
--
-- LIBS  lib/base.lua lib/queue.lua lib/lifecycle.lua lib/prune.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token result …   the leases, in threes, at most 64; a result is opaque
-- REPLY array        one per lease: "completed", "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local refused_because = refused(#ARGV / 3, 64)
if refused_because then return refused_because end
begin()

-- The fields that outlive the end: the story, and what an operator's verb and a waiter go by.
local function keepsakes(job)
  local names, kept, last = {}, {}, job.attempt - 1
  if last == 0 and not (job.ops or job.watched or job.logged) then return kept end
  for n = 1, math.min(5, last) do names[#names + 1] = 'attempt:' .. n end
  for n = math.max(6, last - 3), last do names[#names + 1] = 'attempt:' .. n end
  for n = math.max(1, last - 3), job.logged and last + 1 or 0 do names[#names + 1] = 'log:' .. n end
  for _, name in ipairs({'ops', 'op', 'watched', 'logged'}) do if job[name] then names[#names + 1] = name end end
  if #names == 0 then return kept end
  for i, value in ipairs(call('HMGET', job.hash, unpack(names))) do
    if value then kept[#kept + 1], kept[#kept + 2] = names[i], value end
  end
  return kept
end

local answers, done, forgettable, left, late = {}, {}, {}, {}, 0
for i = 1, #ARGV, 3 do load(ARGV[i]) end
for i = 1, #ARGV, 3 do
  local job = load(ARGV[i])
  local answer = unheld(job, ARGV[i + 1], 'complete')
  if not answer then
    local hash, kept, queue = job.hash, keepsakes(job), job.rules.queue
    local gone = left[queue] or {jobs = 0, bytes = 0, took = {}}
    left[queue], gone.jobs, gone.bytes = gone, gone.jobs + 1, gone.bytes + size(job)
    observe(gone.took, now - job.claimed_at)
    answer = 'completed'
    job.state, job.ended = answer, 'complete ' .. answer
    call('DEL', hash)
    call('HSET', hash, 'state', answer, 'spec', job.rules.header, 'token', job.token, 'attempt', job.attempt,
      'ended', job.ended, 'finished_at', stamp, 'result', ARGV[i + 2],
      'attempt:' .. job.attempt, story(job, answer), unpack(kept))
    ended(job)
    done[#done + 1], forgettable[#forgettable + 1] = job.id, digits(now + math.max(60000, job.rules.retention))
    forgettable[#forgettable + 1] = job.id
  end
  if answer == 'LEASE_LOST' then late = late + 1 end
  answers[#answers + 1] = answer
end
if #done > 0 then
  call('ZREM', key('running'), unpack(done))
  call('ZADD', key('completed'), unpack(forgettable))
  event(done, 'completed', 'completed')
  count('completed', #done)
  sizes.completed = sizes.completed + #done
  for queue, gone in pairs(left) do
    run(queue, -gone.jobs)
    backlog(queue, -gone.jobs, -gone.bytes)
    tally(queue, 'completed', gone.took)
  end
end
count('lease_lost', late)
forget(2 * #answers)
return answers
