-- call: store a job for a step of a running one. Its end keeps the step, and queues the caller if that waits for it.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/conflict.lua lib/intake.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job that runs, the caller
-- ARGV  token        the claim's
-- ARGV  name         the step. A signal of its name is replaced
-- ARGV  queue        of the job to store, in this partition; the next three as of submit, but without key
-- ARGV  task         of the job to store
-- ARGV  rules        of the job to store
-- ARGV  payload      of the job to store
-- REPLY string       the step: "<ms> <kind>", a newline, the value. Of kind call this is the id of the job that was stored, now
--                    or before, and has not ended; of kind called "<id> <state>", a newline, and the result or the error
--                    (state refused: it is completed, and its result does not fit into a step). Or "QUEUE_FULL …",
--                    "INVALID …" or "NOT_FOUND …", as of submit: nothing is stored
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID NOT_FOUND LEASE_LOST STEPS_FULL

local id, token, name, queue = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local task, rules, payload = ARGV[5], ARGV[6], ARGV[7]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local fault = step_fault(name, '')
if fault then return refusal('INVALID', fault) end
local job = load(id)
if not job.state then return refusal('NOT_FOUND', 'no job ' .. tostring(id) .. ': it never existed, or was deleted (retention, erase)') end
if job.state ~= 'running' or job.token ~= token then
  return refusal('LEASE_LOST', 'job ' .. id .. ': another attempt has begun, or it has ended: stop')
end
local kept = kept_step(job, name)
local kind, called = string.match(kept or '', '^%d+ (%l+)\n(.*)$')
if kind and kind ~= 'signal' and not (kind == 'call' and not load(called).state) then return kept end

-- The attempt is part of the new id, so that a retry with anew calls another job
local child = kind == 'call' and called
  or (string.match(base, '(%d+)}$') or '0') .. '-call-' .. digest_of(id .. ' ' .. job.attempt .. ' ' .. name)
call('LLEN', key('downstream:', child))
local no_room = steps_full(job, kept and 0 or 1, #name + #child)
if no_room then return refusal('STEPS_FULL', no_room) end
if string.find(' ' .. rules, ' key=', 1, true) or string.find(' ' .. rules, ' workflow=', 1, true) then
  return refusal('INVALID', 'rules of the called job: its id is made of the caller and the step, so leave out key and workflow')
end
local answer = examine(child, queue, task, rules, payload)
if answer ~= 'created' then return answer end
store_jobs()
call('HSET', key('job:', child), 'watched', '2')
call('RPUSH', key('downstream:', child), id .. ' ' .. name)
keep_step(job, name, 'call', child)
return kept_step(job, name)
