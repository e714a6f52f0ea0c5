-- note: store a running task's checkpoint, for later attempts, and the last lines of its log.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token checkpoint log …   the leases, in fours, at most 100; checkpoint and log are opaque, at most
--                    64 KiB and 8 KiB, "" to leave them unchanged; both replace what this attempt stored
--                    before
-- REPLY array        one per lease: "noted", "LEASE_LOST" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local CHECKPOINT_MAX, LOG_MAX = 65536, 8192
local refused_because = refused(#ARGV / 4, 100)
if refused_because then return refused_because end
for i = 1, #ARGV, 4 do load(ARGV[i]) end
begin()

local answers = {}
for i = 1, #ARGV, 4 do
  local id, token, checkpoint, log = unpack(ARGV, i, i + 3)
  local job, hash = load(id), key('job:', id)
  local answer = lease_answer(job, token, 'note')
  if not answer then
    answer = 'noted'
    if checkpoint ~= '' and #checkpoint <= CHECKPOINT_MAX then
      call('HSET', hash, 'checkpoint', checkpoint)
    end
    if log ~= '' then call('HSET', hash, 'logged', '1', 'log:' .. job.attempt, string.sub(log, -LOG_MAX)) end
  end
  answers[#answers + 1] = answer
end
return answers
