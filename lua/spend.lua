-- spend: say what running jobs really cost. The tokens of their queue and group are corrected by the difference.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/turns.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token cost …  the leases, in threes, at most 100; the cost in all, 0 to 14 digits, in place of the rule
--                    cost, or of what was said before
-- REPLY array        one per lease: "spent", "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local refused_because = refused(#ARGV / 3, 100)
if refused_because then return refused_because end
for i = 1, #ARGV, 3 do
  if not ms(ARGV[i + 2]) then
    return refusal('INVALID', 'cost ' .. string.sub(ARGV[i + 2], 1, 40) .. ': use a whole number of up to 14 digits')
  end
  if load(ARGV[i]).held then check_flow(load(ARGV[i])) end
end
begin()
local answers = {}
for i = 1, #ARGV, 3 do
  local job = load(ARGV[i])
  local answer = lease_answer(job, ARGV[i + 1], 'spend')
  if not answer and job.held then by_turns(job.rules.queue, true):spend(job, tonumber(ARGV[i + 2])) end
  answers[#answers + 1] = answer or 'spent'
end
return answers
