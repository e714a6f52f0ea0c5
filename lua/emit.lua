-- emit: append chunks of a running task's output to the job's stream, for those who read along.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  token        the claim's
-- ARGV  before       how many chunks this attempt has emitted before these; those that are there already, as the call
--                    is sent again, are left out. "": append all
-- ARGV  chunk …      at most 100; each opaque, not empty, at most 64 KiB
-- REPLY string       "emitted". A stream keeps 10,000 entries and 8 MiB of chunks, and loses its oldest. A full server
--                    refuses the call (OOM)
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID NOT_FOUND LEASE_LOST

local CHUNK_MAX, ENTRIES, BYTES = 65536, 10000, 8388608
local SPARE_ENTRIES, SPARE_BYTES = 100, 524288  -- a full stream loses so many at once, not one with each call
local id, token, before = ARGV[1], ARGV[2], ms(ARGV[3])
local n = #ARGV - 3
local refused_because = refused(n, 100, 'running')
if refused_because then return refused_because end
if not before and ARGV[3] ~= '' then return refusal('INVALID', 'before: use a number of up to 14 digits, or leave it empty') end
for i = 4, #ARGV do
  if #ARGV[i] == 0 or #ARGV[i] > CHUNK_MAX then
    return refusal('INVALID', 'a chunk has ' .. #ARGV[i] .. ' bytes: it may have 1 to ' .. CHUNK_MAX .. ': emit it in parts')
  end
end
local job, stream = load(id), key('stream:', id)
if not job.state then return refusal('NOT_FOUND', 'no job ' .. tostring(id) .. ': it never existed, or was deleted (retention, erase)') end
if job.state ~= 'running' or job.token ~= token then
  return refusal('LEASE_LOST', 'job ' .. id .. ': another attempt has begun, or it has ended: stop')
end

-- "<newest entry> <bytes> <chunks of the attempt> <its token>"
local top, stored, n_of, of = string.match(call('HGET', job.hash, 'streamed') or '', '^(%d+) (%d+) (%d+) (%S+)$')
local newest = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
local last = math.max(ms(top) or 0, newest and tonumber(string.match(newest[1], '^%d+')) or 0)
local bytes = newest and ms(stored) or 0
local emitted = of == token and ms(n_of) or 0
local there = before and math.min(n, math.max(0, emitted - before)) or 0
if of == token and there == n then return 'emitted' end

-- Without begin(): a full server refuses the first of these writes
local function append(text)
  last, bytes = last + 1, bytes + #text
  call('XADD', stream, digits(last), job.attempt, text)
end
if of ~= token then append('') end          -- an empty text: the attempt begins
for i = 4 + there, #ARGV do append(ARGV[i]) end
local entries = call('XLEN', stream)
while (entries > ENTRIES or bytes > BYTES) and entries > 0 do
  local oldest, gone = call('XRANGE', stream, '-', '+', 'COUNT', 20), nil
  for _, entry in ipairs(oldest) do
    if entries <= ENTRIES - SPARE_ENTRIES and bytes <= BYTES - SPARE_BYTES then break end
    gone, entries, bytes = entry[1], entries - 1, math.max(0, bytes - #entry[2][2])
  end
  call('XTRIM', stream, 'MINID', digits(tonumber(string.match(gone, '^%d+')) + 1))
end
call('HSET', job.hash, 'logged', '2', 'streamed', table.concat({digits(last), digits(bytes), digits((before or emitted) + n), token}, ' '))
if of ~= token then call('PERSIST', stream) end  -- it would expire with the job, which was retried
if job.watched then call('PUBLISH', stream, digits(last)) end
return 'emitted'
