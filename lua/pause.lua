-- pause: hand out no more jobs of a queue; those that run go on, and new ones are taken in.
--
-- LIBS  lib/base.lua lib/queue.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue; it need not have had a job yet
-- ARGV  revision     what the caller saw: operator's verbs on this queue so far, 0 for a queue that had none
-- REPLY string       "paused"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local name, revision = ARGV[1], ARGV[2]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(name) then return refusal('INVALID', 'a queue is 1 to 128 of A-Z a-z 0-9 _ . : -') end
local queue = look_at(name)
local at_once = outdated(queue, 'pause', revision, 'paused')
if at_once then return at_once end

begin()
arrange(queue, 'pause', revision, limits(queue) .. ' paused=' .. (setting(queue.settings, 'paused') or stamp))
return 'paused'
