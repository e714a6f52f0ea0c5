-- complete: attempts succeeded. Store the results, delete checkpoints and payloads (but with keep=1), prune.
--
-- LIBS  straight/complete.lua lib/base.lua lib/queue.lua lib/flow.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/prune.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token result …   the leases, in threes, at most 64; a result is opaque
-- REPLY array        one per lease: "completed", "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local refused_because = refused(#ARGV / 3, 64)
if refused_because then return refused_because end
begin()

-- The fields that are kept: attempts and logs, those that operators' verbs and watchers need, the tries that are left if
-- not each attempt used one, and with keep=1 a payload that is not in spec.
local function kept_fields(job)
  local names, kept, last = {}, {}, job.attempt - 1
  local keep = job.rules.keep
  if last == 0 and not (job.ops or job.watched or job.logged or keep) then return kept end
  if tonumber(job.tries_left) ~= job.rules.tries - job.attempt then kept = {'tries_left', job.tries_left} end
  for n = 1, math.min(5, last) do names[#names + 1] = 'attempt:' .. n end
  for n = math.max(6, last - 3), last do names[#names + 1] = 'attempt:' .. n end
  for n = math.max(1, last - 3), job.logged and last + 1 or 0 do names[#names + 1] = 'log:' .. n end
  for _, name in ipairs({'ops', 'op', 'watched', 'logged'}) do
    if job[name] then names[#names + 1] = name end
  end
  if keep and job.spec == job.rules.header then names[#names + 1] = 'payload' end
  if #names == 0 then return kept end
  for i, value in ipairs(call('HMGET', job.hash, unpack(names))) do
    if value then kept[#kept + 1], kept[#kept + 2] = names[i], value end
  end
  return kept
end

local answers = {}
local done = {}                             -- ids of the completed jobs
local retained = {}                         -- scores and ids for `completed`
local left = {}                             -- by queue: jobs and bytes that left its backlog, and durations
local late = 0                              -- leases that were lost
for i = 1, #ARGV, 3 do
  local job = load(ARGV[i])
  if job.rules and job.rules.key then get_queue(job.rules.queue) end      -- the end of a job with a key may wake a worker
  if job.held then check_flow(job) end
  if job.rules and is_linked(job) then
    get_queue(job.rules.queue)
    edges().look(job)
  end
end
for i = 1, #ARGV, 3 do
  local job = load(ARGV[i])
  local answer = lease_answer(job, ARGV[i + 1], 'complete')
  if not answer then
    local hash, queue = job.hash, job.rules.queue
    local kept = kept_fields(job)
    local gone = left[queue] or {jobs = 0, bytes = 0, took = {}}
    left[queue] = gone
    gone.jobs = gone.jobs + 1
    gone.bytes = gone.bytes + size(job)
    observe(gone.took, now - job.claimed_at)
    answer = 'completed'
    job.state, job.ended = answer, 'complete ' .. answer
    call('DEL', hash)
    call('HSET', hash, 'state', answer, 'spec', job.rules.keep and job.spec or job.rules.header, 'token', job.token, 'attempt', job.attempt,
      'ended', job.ended, 'finished_at', stamp, 'result', ARGV[i + 2],
      'attempt:' .. job.attempt, story(job, answer), unpack(kept))
    on_end(job, place)
    return_place(job)
    done[#done + 1] = job.id
    retained[#retained + 1] = digits(now + math.max(job.watched == '2' and KEEP_UPSTREAM or 60000, job.rules.retention))
    retained[#retained + 1] = job.id
  end
  if answer == 'LEASE_LOST' then late = late + 1 end
  answers[#answers + 1] = answer
end
if #done > 0 then
  call('ZREM', key('running'), unpack(done))
  call('ZADD', key('completed'), unpack(retained))
  event(done, 'completed', 'completed')
  count('completed', #done)
  sizes.completed = sizes.completed + #done
  for queue, gone in pairs(left) do
    add_running(queue, -gone.jobs)
    backlog(queue, -gone.jobs, -gone.bytes)
    tally(queue, 'completed', gone.took)
  end
end
count('lease_lost', late)
forget(2 * #answers, 100)                   -- the next completions have room, and are plain
return answers
