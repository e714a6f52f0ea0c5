-- note: store a running task's checkpoint, for later attempts, and the last lines of its log.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token checkpoint log …   the leases, in fours, at most 100; checkpoint and log are opaque, at most
--                    64 KiB and 8 KiB, "" to leave them unchanged; both replace what this attempt stored
--                    before
-- REPLY array        one per lease: "noted", "LEASE_LOST" or "NOT_FOUND". A full server refuses the whole call
--                    (OOM) if a field would become longer
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local CHECKPOINT_MAX, LOG_MAX = 65536, 8192
local refused_because = refused(#ARGV / 4, 100)
if refused_because then return refused_because end

local answers, notes, grows = {}, {}, false
for i = 1, #ARGV, 4 do
  local id, token, checkpoint, log = unpack(ARGV, i, i + 3)
  local job, hash = load(id), key('job:', id)
  local answer = lease_answer(job, token, 'note')
  if not answer then
    answer = 'noted'
    local note = {hash = hash, checkpoint = #checkpoint <= CHECKPOINT_MAX and checkpoint or '',
      field = 'log:' .. job.attempt, logged = job.logged == '2' and '2' or '1', log = string.sub(log, -LOG_MAX)}
    grows = grows or #note.checkpoint > call('HSTRLEN', hash, 'checkpoint')
      or #note.log > call('HSTRLEN', hash, note.field)
    notes[#notes + 1] = note
  end
  answers[#answers + 1] = answer
end

if not grows then begin() end               -- a full server refuses notes that need more memory
for _, note in ipairs(notes) do
  if note.checkpoint ~= '' then call('HSET', note.hash, 'checkpoint', note.checkpoint) end
  if note.log ~= '' then call('HSET', note.hash, 'logged', note.logged, note.field, note.log) end
end
return answers
