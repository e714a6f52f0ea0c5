-- pause: hand out no more jobs of a queue. Running jobs go on, and new jobs are accepted.
--
-- LIBS  lib/base.lua lib/queue.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue; it need not have had a job yet
-- ARGV  revision     the one that the caller saw: operators' verbs on this queue so far, 0 if there were none
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "paused"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local name, revision, by = ARGV[1], ARGV[2], ARGV[3]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(name) then return refusal('INVALID', 'name a queue with 1 to 128 of ' .. NAME) end
local queue = get_queue(name)
local at_once = settings_answer(queue, 'pause', revision, 'paused')
if at_once then return at_once end
check_audit(by)

begin()
save_settings(queue, 'pause', revision, limits(queue) .. ' paused='
  .. (setting(queue.settings, 'paused') or stamp))
return audit(by, 'pause', name, name, 'paused')
