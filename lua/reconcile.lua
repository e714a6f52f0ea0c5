-- reconcile: a worker is certainly gone. End its leases before they expire, or delete its registration.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  worker       the one that is gone; leases of other workers are not touched
-- ARGV  life         the one that it enlisted with: if the registration has another one by now, nothing is
--                    done. If it had an exclusive identity, it claims nothing for 10 minutes (see claim)
-- ARGV  id attempt …  the leases to end, in twos, at most 100; with none, the registration is deleted
-- REPLY array        one per lease: "queued", "scheduled <ms>", "dead", "cancelled", "LEASE_LOST" or
--                    "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local BARRED = 600000                       -- ms for which its life may not claim
local BARRED_MAX = 10                       -- lives: the latest
local worker, life = ARGV[1], ARGV[2]
local refused_because = refused((#ARGV - 2) / 2, 100)
if refused_because then return refused_because end
if not is_name(worker) or not is_name(life) then
  return refusal('INVALID', 'worker and life: use 1 to 128 of ' .. NAME)
end
call('ZCARD', key('workers'))
local known, crew, worker_id, owner = unpack(call('HMGET', key('worker:' .. worker), 'life', 'pool', 'worker_id', 'owner'))
for i = 3, #ARGV, 2 do load_movable(ARGV[i]) end

begin()
-- In other partitions there is no registration
if not known or known == life and worker_id and worker_id ~= '' then
  local barred = {life .. ' ' .. string.format('%.0f', now + BARRED)}
  for other, ends in string.gmatch(replaced or '', '(%S+) (%d+)') do
    if other ~= life and tonumber(ends) > now and #barred < BARRED_MAX then
      barred[#barred + 1] = other .. ' ' .. ends
    end
  end
  call('HSET', base, 'replaced', table.concat(barred, ' '))
end
-- The answer for a lease that is not to be ended; nil for a live lease of this worker.
local function other_answer(job, attempt)
  if not job.state then return 'NOT_FOUND' end
  if job.attempt ~= attempt or known and known ~= life then return 'LEASE_LOST' end
  if job.state == 'running' then return job.worker ~= worker and 'LEASE_LOST' or nil end
  return string.match(job.ended or '', '^reconcile (.+)$') or 'LEASE_LOST'
end

local answers, lost = {}, 0
for i = 3, #ARGV, 2 do
  local job = load(ARGV[i])
  local answer = other_answer(job, ARGV[i + 1])
  if not answer then
    answer = lose_lease(job, 'reconcile', 'crashed', 'its worker was gone or replaced')
    lost = lost + 1
  end
  answers[#answers + 1] = answer
end
sum_up()
count('expired', lost)
if #answers == 0 and known == life then
  call('ZREM', key('workers'), worker)
  call('DEL', key('worker:' .. worker))
  if crew then peek('ZREM', key('crew:' .. crew), worker) end
  if owner then peek('ZREM', key('owner:' .. owner), worker) end
end
return answers
