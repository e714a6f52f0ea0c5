-- resume: hand out the jobs of a paused queue again.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue
-- ARGV  revision     the one that the caller saw: operators' verbs on this queue so far, 0 if there were none
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "resumed"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local name, revision, by = ARGV[1], ARGV[2], ARGV[3]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(name) then return refusal('INVALID', 'name a queue with 1 to 128 of ' .. NAME) end
local queue = get_queue(name)
local at_once = settings_answer(queue, 'resume', revision, 'resumed')
if at_once then return at_once end
check_audit(by)

begin()
save_settings(queue, 'resume', revision, limits(queue))
local line = flow(name)
if line then line:call_worker() elseif queue.length > 0 then wake(name) end
return audit(by, 'resume', name, name, 'resumed')
