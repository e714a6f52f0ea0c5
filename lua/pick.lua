-- pick: take up schedules whose occurrence has come. Each is kept from others for 2 s, so that one caller works out what comes next.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  limit        schedules at most, up to 50
-- REPLY array        [ms, now; 1 when there may be more and 0 when not; then per schedule: name, revision, occurrence, plan, overlap]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local KEPT = 2000                           -- ms; who has picked one and died delays it by no more
local limit = tonumber(ARGV[1])
local refused_because = refused(limit, 50)
if refused_because then return refused_because end
local names = call('ZRANGE', key('schedules'), '-inf', stamp, 'BYSCORE', 'LIMIT', 0, limit)
local reply = {stamp, #names == limit and 1 or 0}
if #names == 0 then return reply end

begin()
for _, name in ipairs(names) do
  local revision, occurrence, plan, overlap = unpack(peek('HMGET', key('schedule:' .. name), 'revision', 'occurrence', 'plan', 'overlap'))
  if not revision or not occurrence or occurrence == '' or not plan then
    call('ZREM', key('schedules'), name)    -- of which there is no schedule
  else
    call('ZADD', key('schedules'), string.format('%.0f', now + KEPT), name)
    for _, value in ipairs({name, revision, occurrence, plan, overlap or 'allow'}) do reply[#reply + 1] = value end
  end
end
return reply
