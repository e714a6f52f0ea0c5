-- proceed: an attempt succeeded, and other jobs follow. Complete its job, and store them as a whole workflow, or do neither.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/conflict.lua lib/intake.lua lib/calls.lua lib/members.lua lib/edges.lua lib/links.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/prune.lua lib/completion.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  token        the claim's
-- ARGV  result       opaque
-- ARGV  workflow     an id, of which the jobs that follow become members; this call seals it
-- ARGV  job queue task rules payload after into …   these jobs, in sevens, at most 200, as of workflow: job is the id
-- REPLY string       "completed", "LEASE_LOST" or "NOT_FOUND", as of complete; or a refusal, and the job still runs:
--                    "QUEUE_FULL …", "INVALID …", "NOT_FOUND …" or "WRONG_STATE …"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local id, token, result, workflow = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local wrong = refused((#ARGV - 4) / 7, 200)
if wrong then return wrong end
if #workflow > 64 or not is_name(workflow) then return 'INVALID workflow: use an id of 1 to 64 of ' .. NAME end
local job = load_to_complete(id)
local answer = lease_answer(job, token, 'complete')
if answer then
  if answer == 'LEASE_LOST' then count('lease_lost', 1) end
  return answer
end
local queue = get_queue(job.rules.queue)
check_flow(job)
queue.jobs, queue.bytes = queue.jobs - 1, queue.bytes - size(job)    -- it leaves room
job.state = 'completed'                     -- so that no new job may wait for it
local unfit = select(2, examine_workflow(workflow, 'seal', 5))
queue.jobs, queue.bytes = queue.jobs + 1, queue.bytes + size(job)
if unfit then return unfit end

begin()
store_workflow(workflow, 'seal', place)     -- first: what waits for this job may wait for the new ones, too
complete_job(job, result)
sum_up()
sum_up_completions(1, 0)
return job.state
