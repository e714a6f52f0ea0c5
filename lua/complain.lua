-- complain: a summoned worker could not be invoked. Count it and keep the reason; the summons expires.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  pool         its name
-- ARGV  summons      one of the summonses; the last one repeated is not counted again
-- ARGV  n            the number of summonses that this is about, at most 100
-- ARGV  reason       the reason, at most 300 bytes
-- REPLY string       "noted"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID NOT_FOUND

local name, summons, n, reason = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local refused_because = refused(n, 100)
if refused_because then return refused_because end
if not reason or #reason > 300 or not (is_name(name) and is_name(summons)) then
  return refusal('INVALID', 'pool and summons: use 1 to 128 of ' .. NAME .. '; reason: at most 300 bytes')
end
if call('HEXISTS', key('pools'), name) == 0 then return refusal('NOT_FOUND', 'no pool ' .. name) end
local memory = key('pool:' .. name)
if call('HGET', memory, 'complained') == summons then return 'noted' end

begin()
call('HSET', memory, 'complained', summons, 'failed_at', stamp, 'reason', reason)
add(memory, 'failed', n)
return 'noted'
