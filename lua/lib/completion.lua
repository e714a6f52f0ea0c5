-- lib/completion: how a running job becomes completed. It needs base, queue, flow, edges, lifecycle and prune.
-- luacheck: push ignore 211
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

local completed_ids = {}
local completed_scores = {}                 -- scores and ids for `completed`
local completions = {}                      -- by queue: jobs and bytes that left its backlog, and durations
-- Before the first write: read a job that may be completed, and the keys of its end.
local function load_to_complete(id)
  local job = load(id)
  if job.rules and job.rules.key then get_queue(job.rules.queue) end      -- the end of a job with a key may wake a worker
  if job.held then check_flow(job) end
  if job.rules and is_linked(job) then
    get_queue(job.rules.queue)
    edges().look(job)
  end
  return job
end

local function complete_job(job, result)
  local hash, queue = job.hash, job.rules.queue
  local kept = kept_fields(job)
  local gone = completions[queue] or {jobs = 0, bytes = 0, took = {}}
  completions[queue] = gone
  gone.jobs = gone.jobs + 1
  gone.bytes = gone.bytes + size(job)
  observe(gone.took, now - job.claimed_at)
  job.state, job.ended = 'completed', 'complete completed'
  call('DEL', hash)
  call('HSET', hash, 'state', job.state, 'spec', job.rules.keep and job.spec or job.rules.header, 'token', job.token,
    'attempt', job.attempt, 'ended', job.ended, 'finished_at', stamp, 'result', result,
    'attempt:' .. job.attempt, story(job, job.state), unpack(kept))
  local until_ = now + math.max(job.watched == '2' and KEEP_UPSTREAM or 60000, job.rules.retention)
  on_end(job, place, until_)
  return_place(job)
  completed_ids[#completed_ids + 1] = job.id
  completed_scores[#completed_scores + 1] = digits(until_)
  completed_scores[#completed_scores + 1] = job.id
  return job.state
end

-- Write the sums of the completed jobs. `n` jobs were in the call, and the leases of `late` ones were lost.
local function sum_up_completions(n, late)
  if #completed_ids > 0 then
    call('ZREM', key('running'), unpack(completed_ids))
    call('ZADD', key('completed'), unpack(completed_scores))
    event(completed_ids, 'completed', 'completed')
    count('completed', #completed_ids)
    sizes.completed = sizes.completed + #completed_ids
    for queue, gone in pairs(completions) do
      add_running(queue, -gone.jobs)
      backlog(queue, -gone.jobs, -gone.bytes)
      tally(queue, 'completed', gone.took)
    end
  end
  count('lease_lost', late)
  forget(2 * n, 100)                        -- the next completions have room, and are plain
end
-- luacheck: pop
