-- reap: do maintenance: jobs with an expired lease go back, due jobs are queued. May run concurrently.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/due.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  limit        moves at most, up to 100
-- ARGV  by           the caller's name
-- REPLY array        [leases ended, jobs queued, 1 if there may be more or 0, 1 if an occurrence of a
--                    schedule is due (see pick) or 0, how many pools there are (see summon), how many
--                    partitions the namespace has]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local limit, by = tonumber(ARGV[1]), ARGV[2]
local refused_because = refused(limit, 100)
if refused_because then return refused_because end
if not is_name(by) then return refusal('INVALID', 'by: use 1 to 128 of ' .. NAME) end
local lost, due = maintain(limit, by)
begin()
call('HSET', base, 'maintenance', stamp .. ' ' .. by)
local occurrence = peek('ZRANGE', key('schedules'), 0, 0, 'WITHSCORES')[2]
local pools = peek('HLEN', key('pools'))
local come = occurrence and tonumber(occurrence) <= now
local partitions = tonumber(call('HGET', base, 'partitions') or 0)
return {lost, due, (lost + due == limit or edges_of and edges_of.left) and 1 or 0, come and 1 or 0, type(pools) == 'number' and pools or 0,
  partitions or 0}
