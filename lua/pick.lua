-- pick: get schedules with a due occurrence. Other callers do not get them for 2 s.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  limit        schedules at most, up to 50
-- ARGV  name revision …   schedules to leave to other callers, in twos, at most 100: those whose plan the caller
--                    cannot read
-- REPLY array        [now (ms); 1 if there may be more or 0; then per schedule: name, revision, occurrence,
--                    plan, overlap]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local KEPT = 2000                           -- ms until other callers get the schedule, if this one dies
local limit = tonumber(ARGV[1])
local refused_because = refused(limit, 50) or too_many((#ARGV - 1) / 2, 100)
if refused_because then return refused_because end
local left = {}
for i = 2, #ARGV, 2 do
  if not is_name(ARGV[i]) then return refusal('INVALID', 'name: use 1 to 128 of ' .. NAME) end
  left[ARGV[i]] = ARGV[i + 1]
end
local due = call('ZRANGE', key('schedules'), '-inf', stamp, 'BYSCORE', 'LIMIT', 0, limit + (#ARGV - 1) / 2)
local names = {}
for _, name in ipairs(due) do
  local passed_over = left[name] and peek('HGET', key('schedule:' .. name), 'revision') == left[name]
  if #names < limit and not passed_over then names[#names + 1] = name end
end
local reply = {stamp, #names == limit and 1 or 0}
if #names == 0 then return reply end

begin()
for _, name in ipairs(names) do
  local stored = peek('HMGET', key('schedule:' .. name), 'revision', 'occurrence', 'plan', 'overlap')
  local revision, occurrence, plan, overlap = unpack(stored)
  if not revision or not occurrence or occurrence == '' or not plan then
    call('ZREM', key('schedules'), name)    -- the schedule does not exist
  else
    call('ZADD', key('schedules'), string.format('%.0f', now + KEPT), name)
    for _, value in ipairs({name, revision, occurrence, plan, overlap or 'allow'}) do
      reply[#reply + 1] = value
    end
  end
end
return reply
