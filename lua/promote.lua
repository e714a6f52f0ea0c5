-- promote: queue a scheduled job now, unless it waits for a signal.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     the one that the caller saw: attempts plus operators' verbs accepted
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- ARGV  order        the word of an order for many jobs: the same word again gets the same answer, another order
--                    CHANGED; "" (or left out): none
-- REPLY string       "queued"
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE INVALID

local id, revision, by = ARGV[1], ARGV[2], ARGV[3]
local order = 'promote' .. string.gsub(ARGV[4] or '', '^.', '@%0')
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if string.find(order, '[^!-~]') or #order > 140 then return refusal('INVALID', 'order: use up to 128 visible ASCII characters') end
local job = load_movable(id)
local at_once = order_answer(job, order, revision, 'scheduled')
if at_once then return at_once end
local kind, name = wait_of(job)
if kind == 'signal' then
  return refusal('WRONG_STATE', 'job ' .. id .. ' waits for the signal ' .. name
    .. ': send it, or reschedule the job to end the wait without it')
end
local wait = job.rules.on_failure and edges()
check_audit(by)

begin()
call('ZREM', key('scheduled'), id)
if wait then wait.forget_needs(job) end
place(job, 'queued', due_rank(job), 'promote', 'ready_at', stamp)
return audit(by, 'promote', id, job.rules.queue, record_order(job, order, revision, 'queued'))
