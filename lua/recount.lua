-- recount: set the backlog of queues to numbers that a client has counted, if no job has moved since.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  how          "mend"; "finish": the same, and all other queues are counted; or "look": the same answers,
--                    and nothing is written
-- ARGV  stamp        the id of the last event when the client counted; "" without one
-- ARGV  queue jobs bytes running …  queues, in fours, at most 100, each with its jobs that are scheduled,
--                    queued or running, the bytes of their payloads, and how many of them run
-- REPLY array        one per queue: "sound", or "recounted <jobs> <bytes> <running>": the numbers before, ?
--                    for an invalid one
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID CHANGED

local how, last = ARGV[1], ARGV[2]
local refused_because = refused((#ARGV - 2) / 4, 100)
if refused_because then return refused_because end
local fit = how == 'look' or how == 'mend' or how == 'finish'
for i = 3, #ARGV, 4 do
  fit = fit and is_name(ARGV[i]) and ms(ARGV[i + 1]) and ms(ARGV[i + 2]) and ms(ARGV[i + 3])
end
if not fit then
  return refusal('INVALID', 'how: use look, mend or finish; queue: 1 to 128 of ' .. NAME
    .. '; jobs, bytes and running: numbers of up to 14 digits')
end
local newest = call('XREVRANGE', key('events'), '+', '-', 'COUNT', 1)[1]
if (newest and newest[1] or '') ~= last then
  return refusal('CHANGED', 'jobs have moved since they were counted: count again')
end

local answers, begun = {}, how == 'look'
for i = 3, #ARGV, 4 do
  local fields, said = {}, {}
  for j, what in ipairs({'jobs', 'bytes', 'running'}) do
    local name, number = ARGV[i] .. ' ' .. what, tonumber(ARGV[i + j])
    local has = call('HGET', key('backlog'), name)
    said[j] = tonumber(has or 0) and (has or '0') or '?'
    if (tonumber(has or 0) or -1) ~= number then
      fields[#fields + 1], fields[#fields + 2] = name, digits(number)
    end
  end
  answers[#answers + 1] = #fields == 0 and 'sound' or 'recounted ' .. table.concat(said, ' ')
  if #fields > 0 and how ~= 'look' then
    if not begun then
      begin()
      begun = true
    end
    call('HSET', key('backlog'), unpack(fields))
    if ARGV[i + 1] == '0' then
      call('HDEL', key('backlog'), ARGV[i] .. ' jobs', ARGV[i] .. ' bytes', ARGV[i] .. ' running')
    end
  end
end
local missing, recounted = unpack(call('HMGET', base, 'missing', 'recounted'))
if how == 'finish' and missing and missing ~= recounted then
  if not begun then begin() end
  call('HSET', base, 'recounted', missing)  -- the numbers are right again
end
return answers
