-- audit: record a person's order that takes several calls: before the first, and what came of it after the last.
--
-- LIBS  lib/base.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  order        22 to 64 random characters: among the last 100 entries an order has one, the latest, unless by, verb,
--                    what or queue differ
-- ARGV  by           a person's name, up to 128 bytes
-- ARGV  verb         the order
-- ARGV  what         what it is for, up to 200 bytes
-- ARGV  queue        the queue that it is for; "" if it is for several, or none
-- ARGV  outcome      how many were found, or were done, up to 200 bytes
-- REPLY string       "recorded"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID

local order, by, verb, what, queue, outcome = unpack(ARGV, 1, 6)
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(verb) or not is_name(order) or #order > 64 or by == '' or not outcome
    or queue ~= '' and not is_name(queue) then
  return refusal('INVALID', 'order and verb: ' .. NAME .. '; by: 1 to 128 bytes; queue: a name, or ""')
end
local before                                -- its entry, with another outcome
local whose = table.concat({string.sub(by, 1, 128), verb, string.sub(what, 1, 200), queue, order}, '\0')
for _, entry in ipairs(call('XREVRANGE', key('audit'), '+', '-', 'COUNT', 100)) do
  local f = entry[2]
  if table.concat({f[2], f[4], f[6], f[8], f[12]}, '\0') == whose then
    if f[10] == outcome then return 'recorded' end
    before = before or entry[1]
  end
end
needs('XDEL', key('audit'), '0-1')

begin()
if before then call('XDEL', key('audit'), before) end
audit(by, verb, what, queue, outcome, order)
return 'recorded'
