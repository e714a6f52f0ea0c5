-- cancel: end a job that waits; ask the worker of one that runs, which hears it at its next heartbeat.
--
-- LIBS  lib/base.lua lib/queue.lua lib/lifecycle.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     what the caller saw: attempts plus operator's verbs accepted
-- REPLY string       "cancelled", or "requested" when the job runs
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE

local id, revision = ARGV[1], ARGV[2]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local job = load_movable(id)
local at_once = disordered(job, 'cancel', revision, 'scheduled', 'queued', 'running')
if at_once then return at_once end

begin()
if job.state == 'running' then
  call('HSET', key('job:', id), 'cancel_requested_at', stamp)
  return order(job, 'cancel', revision, 'requested')
end
call('ZREM', key(job.state == 'queued' and 'queue:' .. job.rules.queue or 'scheduled'), id)
place(job, 'cancelled', kept_until(job), 'cancel')
sum_up()
return order(job, 'cancel', revision, 'cancelled')
