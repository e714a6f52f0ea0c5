-- watch: ask to be told when jobs end, on the channel base .. ":ended"; subscribe first. Answers where they stand now.
--
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id …         the jobs
-- REPLY array        per job: its state or "NOT_FOUND", its result or "", the last line of its story or ""
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local refused_because = refused(#ARGV, 200)
if refused_because then return refused_because end
begin()

local reply = {}
for _, id in ipairs(ARGV) do
  local hash = key('job:' .. id)
  local state, result, attempt, finished_at = unpack(call('HMGET', hash, 'state', 'result', 'attempt', 'finished_at'))
  local last = finished_at and attempt and call('HGET', hash, 'attempt:' .. attempt)
  if state and not finished_at then call('HSET', hash, 'watched', '1') end
  reply[#reply + 1] = state or 'NOT_FOUND'
  reply[#reply + 1] = finished_at and result or ''
  reply[#reply + 1] = last or ''
end
return reply
