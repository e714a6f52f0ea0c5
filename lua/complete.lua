-- complete: attempts succeeded. Store the results, delete checkpoints and payloads (but with keep=1), prune.
--
-- LIBS  straight/complete.lua lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/prune.lua lib/completion.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token result …   the leases, in threes, at most 64; a result is opaque
-- REPLY array        one per lease: "completed", "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local refused_because = refused(#ARGV / 3, 64)
if refused_because then return refused_because end
begin()

local answers, late = {}, 0
for i = 1, #ARGV, 3 do load_to_complete(ARGV[i]) end
for i = 1, #ARGV, 3 do
  local job = load(ARGV[i])
  local answer = lease_answer(job, ARGV[i + 1], 'complete') or complete_job(job, ARGV[i + 2])
  if answer == 'LEASE_LOST' then late = late + 1 end
  answers[#answers + 1] = answer
end
sum_up_completions(#answers, late)
return answers
