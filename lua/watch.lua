-- watch: publish the ids of these jobs on base .. ":ended" when they end; subscribe first.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id …         the jobs
-- REPLY array        per job: its state or "NOT_FOUND", its result or "", the stored text of its last attempt
--                    or ""
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local refused_because = refused(#ARGV, 200)
if refused_because then return refused_because end
local reply = {}
for _, id in ipairs(ARGV) do load(id) end
begin()
for _, id in ipairs(ARGV) do
  local hash, job = key('job:', id), load(id)
  local over = job.state and call('HGET', hash, 'finished_at')
  local last = over and job.attempt and call('HGET', hash, 'attempt:' .. job.attempt)
  if job.state and not over and job.watched ~= '2' then call('HSET', hash, 'watched', '1') end
  reply[#reply + 1] = job.state or 'NOT_FOUND'
  reply[#reply + 1] = over and call('HGET', hash, 'result') or ''
  reply[#reply + 1] = last or ''
end
return reply
