-- suspend: end attempts whose tasks wait for a moment, a signal or a called job. No try is used. The wait ends with a kept step.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token kind name delay …  the leases, in fives, at most 100; kind: "sleep", "signal" or "call" (see call); the name
--                    of the step; delay: ms until the sleep is over, or the wait for the signal; "" for a signal or call: no limit
-- REPLY array        one per lease: "scheduled <ms>" (99999999999999: no limit), "queued" (the step is kept already:
--                    the job is at its old place), "dead" (it has as many steps as it may have; or no tries are left, and it called no job), "cancelled" (a cancel was
--                    requested, or a newer job of its key waits), "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local refused_because = refused(#ARGV / 5, 100)
if refused_because then return refused_because end
for i = 1, #ARGV, 5 do
  local kind, name, delay = unpack(ARGV, i + 2, i + 4)
  local fault = step_fault(name, '') or not KINDS[kind] and 'kind ' .. string.sub(kind, 1, 40) .. ': use sleep, signal or call'
    or not (ms(delay) and kind ~= 'call' or kind ~= 'sleep' and delay == '')
      and 'delay ' .. string.sub(delay, 1, 40) .. ': use ms, at most 14 digits' .. (kind == 'call' and '; none for a call' or '')
  if fault then return refusal('INVALID', fault) end
  load_movable(ARGV[i])
end
begin()

local function suspend(job, kind, name, delay)
  local ending = {verb = 'suspend', code = 'suspended', streak = '', message = kind .. ' ' .. name, detail = ''}
  local is_kept = kept_step(job, name)
  local calls = kind == 'call' and string.find(is_kept or '', '^%d+ call\n')
  local no_room = not is_kept and kind ~= 'call' and steps_full(job, 1, #name)
  call('HDEL', job.hash, 'awaits')
  if kind == 'call' and not is_kept then    -- it would wait for ever
    ending.code = 'not_called'
    ending.message = 'step ' .. name .. ' has called no job: send call before suspend'
    return try_again(job, ending)
  end
  if no_room then
    ending.code = 'steps_full'
    ending.message, job.tries_left = no_room, 0
    return try_again(job, ending)
  end
  job.tries_left = job.tries_left + 1
  if is_kept and not calls then return try_again(job, ending, 0) end
  local turn = job.rank or rank(job.rules.priority, next_seq(1))
  local answer = try_again(job, ending, math.max(1, math.min(ms(delay) or 1e14, NEVER - now)))
  if job.state == 'scheduled' then call('HSET', job.hash, 'awaits', kind .. ' ' .. name .. ' ' .. turn) end
  return answer
end

local answers, late = {}, 0
for i = 1, #ARGV, 5 do
  local id, token, kind, name, delay = unpack(ARGV, i, i + 4)
  local job = load(id)
  local answer = lease_answer(job, token, 'suspend') or suspend(job, kind, name, delay)
  if answer == 'LEASE_LOST' then late = late + 1 end
  answers[#answers + 1] = answer
end
sum_up()
count('lease_lost', late)
return answers
