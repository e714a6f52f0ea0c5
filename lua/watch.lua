-- watch: publish the ids of these jobs on base .. ":ended" when they end; subscribe first.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id …         the jobs
-- REPLY array        per job: its state or "NOT_FOUND", its result or "", the stored text of its last attempt,
--                    without one its error, or "". Of a workflow: "running", or "completed" when all of its jobs have ended, and how many of
--                    them are completed, dead and cancelled, with spaces between
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local refused_because = refused(#ARGV, 200)
if refused_because then return refused_because end
-- A workflow's state and how many of its members have ended in which way; nil if there is none.
local function watch_workflow(id)
  local state, ended_at = unpack(peek('HMGET', key('workflow:', id), 'state', 'ended_at'))
  if not state then return nil end
  local counts = {}
  for ended_as = 1, 3 do counts[ended_as] = call('ZCOUNT', key('members:', id), ended_as, ended_as) end
  return ended_at and 'completed' or 'running', table.concat(counts, ' ')
end

local reply = {}
for _, id in ipairs(ARGV) do load(id) end
begin()
for _, id in ipairs(ARGV) do
  local hash, job = key('job:', id), load(id)
  local over = job.state and call('HGET', hash, 'finished_at')
  local last = over and call('HGET', hash, job.attempt and 'attempt:' .. job.attempt or 'error')
  if job.state and not over and job.watched ~= '2' then call('HSET', hash, 'watched', '1') end
  local state, counts = job.state, nil
  if not state and #id <= 64 then state, counts = watch_workflow(id) end
  reply[#reply + 1] = state or 'NOT_FOUND'
  reply[#reply + 1] = over and call('HGET', hash, 'result') or counts or ''
  reply[#reply + 1] = last or ''
end
return reply
