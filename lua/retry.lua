-- retry: queue a dead or cancelled job again, with all its tries. Jobs that it cancelled wait for it again.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     the one that the caller saw: attempts plus operators' verbs accepted
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- ARGV  how          "anew": forget the kept steps; "" (or left out): go on after them
-- REPLY string       "queued"; "scheduled" if it waits for other jobs again
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE INVALID
-- CODE  KEY_TAKEN    another job holds the key by now

local id, revision, by, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4] or ''
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if how ~= '' and how ~= 'anew' then return refusal('INVALID', 'how ' .. string.sub(how, 1, 40) .. ': use anew, or leave it out') end
local order = how == '' and 'retry' or 'retry:anew'
local job = load_movable(id)
local at_once = order_answer(job, order, revision, 'dead', 'cancelled')
if at_once then return at_once end
local rules = job.rules
local lock = rules.key and key('key:' .. rules.queue .. '|' .. rules.key)
local holder = lock and call('GET', lock)
if holder and holder ~= id then
  return refusal('KEY_TAKEN', 'job ' .. holder .. ' holds the key ' .. rules.key .. ' of queue '
    .. rules.queue .. ': retry when that job has ended, or the key\'s window has')
end
local waits = rules.on_failure and (edges().read(job).needs or 0) > 0 and job.broken == 0
check_audit(by)

begin()
if lock and not holder then call('SET', lock, id, unpack(rules.window and {'PX', rules.window} or {})) end
call('ZREM', key(job.state), id)
call('HDEL', key('job:', id), 'token', 'ended', 'streak', 'tries_left', 'finished_at', 'awaits')
if how == 'anew' then forget_steps(job) end
backlog(rules.queue, 1, size(job))
if rules.on_failure and not waits then edges().forget_needs(job) end
place(job, waits and 'scheduled' or 'queued', waits and edges().wait_until(job) or rank(rules.priority, next_seq(1)), 'retry')
if is_linked(job) then edges().revive(job, place) end
return audit(by, 'retry', id, job.rules.queue, record_order(job, order, revision, job.state))
