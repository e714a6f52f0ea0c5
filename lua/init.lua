-- init: create the metadata of one partition of a namespace. Repeated, it changes nothing.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  partitions   how many partitions the namespace has: 1, unless all clients agree on more
-- REPLY string       the layout of the namespace
-- CODE  WRONG_LAYOUT INVALID

local partitions = ARGV[1] or ''
if not string.find(partitions, '^[1-9]%d?%d?%d?$') then
  return refusal('INVALID', 'partitions: use a whole number from 1 to 9999')
end
local layout, number = unpack(call('HMGET', base, 'layout', 'partitions'))
if layout and layout ~= LAYOUT then return refused(0, 0) end
if number and number ~= partitions then
  return refusal('WRONG_LAYOUT', base .. ' has ' .. number .. ' partitions, not ' .. partitions .. ': use ' .. number)
end
if not (layout and number) then call('HSET', base, 'layout', LAYOUT, 'partitions', partitions) end
return LAYOUT
