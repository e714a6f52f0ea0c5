-- init: make a namespace's base, once; safe to repeat.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  partitions   how many of them the namespace has: 1, unless all who use it agree on more
-- REPLY string       the layout that the namespace has
-- CODE  WRONG_LAYOUT INVALID

local partitions = ARGV[1] or ''
if not string.find(partitions, '^[1-9]%d?%d?%d?$') then return refusal('INVALID', 'partitions is a number from 1 to 9999') end
local layout, number = unpack(call('HMGET', base, 'layout', 'partitions'))
if layout and layout ~= LAYOUT then return refused(0, 0) end
if number and number ~= partitions then
  return refusal('WRONG_LAYOUT', base .. ' is one of ' .. number .. ' partitions, not of ' .. partitions)
end
if not (layout and number) then call('HSET', base, 'layout', LAYOUT, 'partitions', partitions) end
return LAYOUT
