-- drop: make every verb refuse, then delete keys. Clients may still call the partition meanwhile.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  submitted    the field of the base that the caller saw, 0 if it is not a number; a partition made
--                    again since has a lower one
-- ARGV  key …        none: set the mark. Otherwise full names of keys of this partition to delete, at most
--                    1,000; the base last
-- REPLY string       "dropped"; or "deleted <n>", the number of these keys that existed
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED TOO_MANY

local seen, n = ms(ARGV[1]), #ARGV - 1
local fit = seen
for i = 2, #ARGV do fit = fit and (ARGV[i] == base or string.sub(ARGV[i], 1, #base + 1) == base .. ':') end
if not fit then
  return refusal('INVALID', 'submitted: use a number of up to 14 digits; keys: each must begin with ' .. base)
end
local refused_because = too_many(n, 1000)
if refused_because then return refused_because end
local found = (n == 0 and call or peek)('HMGET', base, 'layout', 'submitted')
local layout, has = found[1], found[2]      -- neither, if the base is of a wrong type: no verb writes there
if n > 0 then
  if layout == LAYOUT then return refusal('CHANGED', base .. ' was created again since the drop began: nothing more is deleted') end
  if layout and layout ~= 'dropped' then return refused(0, 0) end
  return 'deleted ' .. call('UNLINK', unpack(ARGV, 2))
end
if layout == 'dropped' then return layout end
if layout ~= LAYOUT then return refused(0, 0) end
if seen > (ms(has) or 0) then return refusal('CHANGED', base .. ' was created again since it was read: read it again') end
begin()
call('HSET', base, 'layout', 'dropped')
return 'dropped'
