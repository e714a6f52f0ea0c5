-- heartbeat: extend leases of a worker, and store the progress of their jobs.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  lease        ms until the leases end without another heartbeat
-- ARGV  id token progress …   the leases, in threes; progress is opaque, at most 1 KiB, "" to leave it
--                    unchanged
-- REPLY array        one per lease: the new end in ms, "LEASE_LOST", "NOT_FOUND" or "CANCEL_REQUESTED"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local lease, answers = ms(ARGV[1]), {}
local refused_because = refused((#ARGV - 1) / 3, 200, 'running')
if refused_because then return refused_because end
if not lease then return refusal('INVALID', 'lease is not a number of ms: use up to 14 digits') end
for i = 2, #ARGV, 3 do load(ARGV[i]) end
begin()
for i = 2, #ARGV, 3 do
  local id, token, progress = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local job = load(id)
  local answer = lease_answer(job, token, 'heartbeat')
  if not answer then
    local expires = lease_end(lease, tonumber(job.claimed_at), job.rules.timeout)
    call('ZADD', key('running'), 'XX', expires, id)
    call('HSET', key('job:', id), 'heartbeat_at', stamp)
    if progress ~= '' and #progress <= 1024 then call('HSET', key('job:', id), 'progress', progress) end
    answer = job.cancel_requested_at and 'CANCEL_REQUESTED' or expires
  end
  answers[#answers + 1] = answer
end
return answers
