-- step: keep the results of parts of a running task for its later attempts, or read those that are kept.
--
-- LIBS  lib/base.lua lib/queue.lua lib/steps.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  token        the claim's
-- ARGV  name value …  steps to keep, in twos, at most 100; a value is opaque, at most 64 KiB. A step that is kept
--                    stays as it is; a signal of its name is replaced. Without any: read all kept steps
-- REPLY array        one per step: "kept", and the job's tries begin again; or the step that was there before:
--                    "<ms> <kind>", a newline, the value. The kind: step, signal, sleep, or timeout (of a wait
--                    for a signal; the value is empty). Without any: name and step of each kept one, in twos
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID NOT_FOUND LEASE_LOST STEPS_FULL

local id, token = ARGV[1], ARGV[2]
local refused_because = refused((#ARGV - 2) / 2, 100, 'running')
if refused_because then return refused_because end
for i = 3, #ARGV, 2 do
  local fault = step_fault(ARGV[i], ARGV[i + 1])
  if fault then return refusal('INVALID', fault) end
end
local job = load(id)
if not job.state then return refusal('NOT_FOUND', 'no job ' .. tostring(id) .. ': it never existed, or was deleted (retention, erase)') end
if job.state ~= 'running' or job.token ~= token then
  return refusal('LEASE_LOST', 'job ' .. id .. ': another attempt has begun, or it has ended: stop')
end

-- The step of this name that was there. A signal is none: its sender did not do what the task does.
local function own_step(name)
  local kept = kept_step(job, name)
  return kept and not string.find(kept, '^%d+ signal\n') and kept
end
local answers = {}
if #ARGV == 2 then
  local fields = step_fields(job)
  for i = 1, #fields, 2 do answers[i], answers[i + 1] = string.sub(fields[i], 6), fields[i + 1] end
  return answers
end
local more, room, new = 0, 0, {}
for i = 3, #ARGV, 2 do
  local name = ARGV[i]
  if not new[name] and not own_step(name) then
    new[name], more, room = true, more + 1, room + #name + #ARGV[i + 1]
  end
end
local no_room = more > 0 and steps_full(job, more, room)
if no_room then return refusal('STEPS_FULL', no_room) end

begin()
for i = 3, #ARGV, 2 do
  local name = ARGV[i]
  local before = own_step(name)
  answers[#answers + 1] = before or 'kept'
  if not before then keep_step(job, name, 'step', ARGV[i + 1]) end
end
if more > 0 then renew_tries(job) end
return answers
