-- drop: have every verb refuse from now on, and delete keys of what refuses: so a partition goes while others still call.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  submitted    what the caller saw: the field of the base, 0 where it is no such number; one that was made anew since has fewer
-- ARGV  key …        none: set the mark. Or keys to delete, in full, all of this partition, at most 1,000; the base at the last
-- REPLY string       "dropped"; or "deleted <n>", as many of the keys as there were
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED TOO_MANY

local seen, n = ms(ARGV[1]), #ARGV - 1
local fit = seen
for i = 2, #ARGV do fit = fit and (ARGV[i] == base or string.sub(ARGV[i], 1, #base + 1) == base .. ':') end
if not fit then return refusal('INVALID', 'submitted is a number, up to 14 digits, and keys are of ' .. base) end
local too_many = beyond(n, 1000)
if too_many then return too_many end
local found = (n == 0 and call or peek)('HMGET', base, 'layout', 'submitted')
local layout, has = found[1], found[2]      -- neither where the base is of a wrong type: nobody writes there, either
if n > 0 then
  if layout == LAYOUT then return refusal('CHANGED', base .. ' was made anew since: nothing more is deleted') end
  if layout and layout ~= 'dropped' then return refused(0, 0) end
  return 'deleted ' .. call('UNLINK', unpack(ARGV, 2))
end
if layout == 'dropped' then return layout end
if layout ~= LAYOUT then return refused(0, 0) end
if seen > (ms(has) or 0) then return refusal('CHANGED', base .. ' was made anew since: look again') end
begin()
call('HSET', base, 'layout', 'dropped')
return 'dropped'
