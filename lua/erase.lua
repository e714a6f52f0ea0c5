-- erase: delete a finished job at once: payload, result, log, attempts, and its key. Its id stays in old events.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     the one that the caller saw: attempts plus operators' verbs accepted
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "erased"
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE

local id, revision, by = ARGV[1], ARGV[2], ARGV[3]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local job = load(id)
local at_once = order_answer(job, 'erase', revision, 'completed', 'dead', 'cancelled')
if at_once then return at_once end
if job.watched == '2' and call('LLEN', key('downstream:', id)) > 0 then
  return refusal('WRONG_STATE', 'job ' .. id .. ' has downstream jobs that its end has not reached yet: '
    .. 'erase it after the next claims or ticks')
end
local fails = job.watched == '2' and call('LLEN', key('broken:', id)) > 0
if fails then
  needs('RENAME', key('broken:', id), key('downstream:', id))
  get_queue(job.rules.queue)
end
local lock = job.rules.key and key('key:' .. job.rules.queue .. '|' .. job.rules.key)
local holds = lock and peek('GET', lock) == id
check_audit(by)

begin()
if holds then call('DEL', lock) end
delete_jobs(job.state, {id})
call('DEL', key('stream:', id))
if fails then                               -- what waits for its retry is cancelled by the next claims or ticks
  call('RENAME', key('broken:', id), key('downstream:', id))
  call('PERSIST', key('downstream:', id))
  mark_unsettled(id, stamp)
  wake(job.rules.queue)
end
return audit(by, 'erase', id, job.rules.queue, 'erased')
