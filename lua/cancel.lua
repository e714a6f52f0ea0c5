-- cancel: end a waiting job, or request the end of a running one; the next heartbeat informs its worker.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     the one that the caller saw: attempts plus operators' verbs accepted
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- ARGV  how          "all": all jobs of the workflow are cancelled, so those that would run in spite of this are, too; ""
--                    (or left out): this job alone
-- ARGV  order        the word of an order for many jobs: the same word again gets the same answer, another order
--                    CHANGED; "" (or left out): none
-- REPLY string       "cancelled", or "requested" if the job runs
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE INVALID

local id, revision, by, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4] or ''
local order = (how == '' and 'cancel' or 'cancel:all') .. string.gsub(ARGV[5] or '', '^.', '@%0')
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if how ~= '' and how ~= 'all' then
  return refusal('INVALID', 'how ' .. string.sub(how, 1, 40) .. ': use all, or leave it out')
end
if string.find(order, '[^!-~]') or #order > 140 then return refusal('INVALID', 'order: use up to 128 visible ASCII characters') end
local job = load_movable(id)
local at_once = order_answer(job, order, revision, 'scheduled', 'queued', 'running')
if at_once then return at_once end
check_audit(by)

begin()
job.op = order
if job.state == 'running' then
  call('HSET', key('job:', id), 'cancel_requested_at', stamp)
  return audit(by, 'cancel', id, job.rules.queue, record_order(job, order, revision, 'requested'))
end
if job.state == 'queued' then leave_queue(job) else call('ZREM', key('scheduled'), id) end
place(job, 'cancelled', kept_until(job), 'cancel')
sum_up()
return audit(by, 'cancel', id, job.rules.queue, record_order(job, order, revision, 'cancelled'))
