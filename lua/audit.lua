-- audit: record a person's order that takes several calls, before the first of them.
--
-- LIBS  lib/base.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  order        22 to 64 random characters: among the last 100 entries an order is recorded once
-- ARGV  by           a person's name, up to 128 bytes
-- ARGV  verb         the order
-- ARGV  what         what it is for, up to 200 bytes
-- ARGV  queue        the queue that it is for; "" if it is for several, or none
-- ARGV  outcome      how many, up to 200 bytes
-- REPLY string       "recorded"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID

local order, by, verb, what, queue, outcome = unpack(ARGV, 1, 6)
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(verb) or not is_name(order) or #order > 64 or by == '' or not outcome
    or queue ~= '' and not is_name(queue) then
  return refusal('INVALID', 'order and verb: ' .. NAME .. '; by: 1 to 128 bytes; queue: a name, or ""')
end
for _, entry in ipairs(call('XREVRANGE', key('audit'), '+', '-', 'COUNT', 100)) do
  local fields = entry[2]
  if fields[#fields] == order then return 'recorded' end
end

begin()
audit(by, verb, what, queue, outcome, order)
return 'recorded'
