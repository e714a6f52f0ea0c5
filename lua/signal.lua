-- signal: keep an event as a step of an unfinished job, before, while or after it waits for it. One that waits is queued.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  name         the step for which the task waits
-- ARGV  value        opaque, at most 64 KiB
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "kept"
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND INVALID STEPS_FULL
-- CODE  WRONG_STATE  it has ended; or it has kept this step with another value, or waited in vain

local id, name, value, by = ARGV[1], ARGV[2], ARGV[3] or '', ARGV[4]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local fault = step_fault(name, value)
if fault then return refusal('INVALID', fault) end
local job = load_movable(id)
if not job.state then return refusal('NOT_FOUND', 'no job ' .. tostring(id) .. ': it never existed, or was deleted (retention, erase)') end
local at, kind, before = string.match(kept_step(job, name) or '', '^(%d+) (%l+)\n(.*)$')
if kind == 'signal' and before == value then return 'kept' end
if kind then
  return refusal('WRONG_STATE', 'job ' .. id .. ' has kept ' .. name .. ' (' .. kind .. ') for '
    .. math.floor((now - tonumber(at)) / 1000) .. ' s: a step is kept once, and this is another value')
end
if job.state == 'completed' or WENT_WRONG[job.state] then
  return refusal('WRONG_STATE', 'job ' .. id .. ' is ' .. job.state .. ': signal takes one that has not ended')
end
local no_room = steps_full(job, 1, #name + #value)
if no_room then return refusal('STEPS_FULL', no_room) end
local _, awaited, turn = wait_of(job)
check_audit(by)

begin()
if awaited == name then
  call('ZREM', key('scheduled'), id)
  place(job, 'queued', end_wait(job, name, 'signal', value, turn), 'signal', 'ready_at', stamp)
else
  keep_step(job, name, 'signal', value)
end
return audit(by, 'signal', id, job.rules.queue, 'kept', name)
