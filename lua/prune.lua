-- prune: delete finished jobs past their retention or above the number kept, and surplus empty queues.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/prune.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  limit        jobs at most, up to 200
-- REPLY array        [jobs deleted, 1 if there may be more or 0]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local limit = tonumber(ARGV[1])
local refused_because = refused(limit, 200)
if refused_because then return refused_because end
begin()
local gone, queues_gone = forget(limit)
sweep_tags(limit)
return {gone, (gone == limit or queues_gone > 0) and 1 or 0}
