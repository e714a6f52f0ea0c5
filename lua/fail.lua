-- fail: attempts failed. Record the failure, and try again after the backoff, or make the job dead.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token code message detail again …   the leases, in sixes, at most 50; code is one word, message at
--                    most 1 KiB, detail 4 KiB; again: "yes" to try again while tries are left, "no" to make
--                    the job dead now
-- REPLY array        one per lease: "scheduled <ms>", "dead", "cancelled" (a cancel was requested),
--                    "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local refused_because = refused(#ARGV / 6, 50)
if refused_because then return refused_because end
for i = 1, #ARGV, 6 do
  local again = ARGV[i + 5]
  if again ~= 'yes' and again ~= 'no' then
    return refusal('INVALID', 'again=' .. string.sub(again, 1, 40) .. ': use yes or no')
  end
  load_movable(ARGV[i])
end
begin()

local answers, failed, late = {}, 0, 0
local took = {}                             -- durations by queue
for i = 1, #ARGV, 6 do
  local id, token, code, message, detail, again = unpack(ARGV, i, i + 5)
  local job = load(id)
  local answer = lease_answer(job, token, 'fail')
  if not answer then
    local queue = job.rules.queue
    if not (job.cancel_requested_at and code == 'cancelled') then          -- stopped on request: it did not fail
      failed = failed + 1
      took[queue] = took[queue] or {}
      observe(took[queue], now - job.claimed_at)
    end
    answer = try_again(job, {verb = 'fail', code = string.match(code, '^[%w_.:-]+$') or 'failed',
      message = message, detail = detail, final = again == 'no'})
  end
  if answer == 'LEASE_LOST' then late = late + 1 end
  answers[#answers + 1] = answer
end
sum_up()
for queue, seen in pairs(took) do tally(queue, 'failed', seen) end
count('failed', failed)
count('lease_lost', late)
return answers
