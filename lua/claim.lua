-- claim: do a share of the upkeep, then take up to n jobs from the queues, in their order, each under a new lease.
--
-- LIBS  lib/base.lua lib/queue.lua lib/lifecycle.lua lib/due.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  claim_id     22 to 64 random characters; the same id again within 10 s gives what is still held, and leaves a mark (see release)
-- ARGV  worker       the caller's name
-- ARGV  lease        ms the worker may stay silent
-- ARGV  n            jobs wanted, at most 100; 0 does the upkeep alone, and leaves no mark
-- ARGV  queue …      the queues, at most 32, the first one first
-- REPLY array        [token, ms until this worker should claim again (at most 2000), 1 when a schedule's occurrence has come (see pick),
--                    then per job: id, attempt, lease's end, spec, payload ("" when it is in spec), how the last attempt ended
--                    or "", and, where one left a checkpoint, a newline and the checkpoint]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local CAP, MEMO, BYTES = 2000, 10000, 1048576   -- ms until the next look; ms a claim is remembered; bytes in a reply
local claim_id, worker, lease, n = ARGV[1], ARGV[2], ms(ARGV[3]), tonumber(ARGV[4])
local refused_because = refused(n, 100) or beyond(#ARGV - 4, 32)
if refused_because then return refused_because end
local unfit = not are_names(ARGV, 5) or not is_name(worker) or not is_name(claim_id) or #claim_id < 22 or #claim_id > 64 or not lease
if unfit then return refusal('INVALID', 'claim_id is 22 to 64, names are 1 to 128 of A-Z a-z 0-9 _ . : -, lease a number of ms') end

local reply, leases, taken, waits, left, lost, bytes = {'', CAP, 0}, {}, {}, {}, false, 0, 0
local function answer(id, attempt, expires, spec)
  local payload = not string.find(spec, '\n', 1, true) and call('HGET', key('job:', id), 'payload') or ''
  local last, kept
  if attempt > 1 then last, kept = unpack(call('HMGET', key('job:', id), 'attempt:' .. attempt - 1, 'checkpoint')) end
  local before, i = (last and string.match(last, '^%S+ %S+ %S+ (%S+)') or '') .. (kept and '\n' .. kept or ''), #reply
  reply[i + 1], reply[i + 2], reply[i + 3], reply[i + 4], reply[i + 5], reply[i + 6] = id, attempt, expires, spec, payload, before
  bytes = bytes + #spec + #payload + #before
end

local memo = call('GET', key('claim:' .. claim_id))
if memo then                                -- asked before: the same jobs, those that still bear the token
  local words = string.gmatch(memo, '[^ +]+')      -- a plus is in no id: it is the mark
  reply[1] = words()
  for id in words do
    local job = load(id)
    if not unheld(job, reply[1], 'claim') then answer(id, tonumber(job.attempt), tonumber(call('ZSCORE', key('running'), id)), job.spec) end
  end
  if n > 0 and not string.find(memo, '+', 1, true) then begin() call('APPEND', key('claim:' .. claim_id), ' +') end
  return reply
end
needs('SET', key('alarm'), '')
local alarm = call('GET', key('alarm'))
for i = 5, #ARGV do look_at(ARGV[i]) end
upkeep(10 + math.floor(n / 2), worker)

-- One job under a lease; true when this reply has no room for it.
local function take(id, score)
  local hash = key('job:', id)
  local state, spec, attempts, tries_left = unpack(peek('HMGET', hash, 'state', 'spec', 'attempt', 'tries_left'))
  local rules, attempt = spec and read_header(spec) or {}, numeral(attempts, 0) + 1
  if state ~= 'queued' or not rules.queue then lost = lost + (state and 0 or 1) return end
  if bytes > 0 and not string.find(spec, '\n', 1, true) and bytes + call('HSTRLEN', hash, 'payload') > BYTES then return true end
  local expires = lease_end(lease, now, rules.timeout)
  if reply[1] == '' then reply[1] = new_fence() .. '.' .. claim_id end
  call('HSET', hash, 'state', 'running', 'token', reply[1], 'attempt', digits(attempt),
    'tries_left', digits(numeral(tries_left, rules.tries) - 1), 'worker', worker, 'claimed_at', stamp, 'rank', score)
  leases[#leases + 1], leases[#leases + 2], taken[#taken + 1] = digits(expires), id, id
  if attempt == 1 then observe(waits, waited(rules)) end
  answer(id, attempt, expires, spec)
end

for i = 5, #ARGV do
  local head, gone, before = heads(ARGV[i], n - #taken), {}, #taken
  for j = 1, #head, 2 do
    if take(head[j], head[j + 1]) then n = 0 break else gone[#gone + 1] = head[j] end
  end
  if #gone > 0 then left = call('ZREM', key('queue:' .. ARGV[i]), unpack(gone)) run(ARGV[i], #taken - before) end
  if waits.ms then tally(ARGV[i], 'wait', waits) waits = {} end
  if lost > 0 then lost = backlog(ARGV[i], -lost, 0) or 0 end      -- ids of which there is no job
end
if #taken > 0 then
  call('ZADD', key('running'), unpack(leases))
  event(taken, 'running', worker)
  call('SET', key('claim:' .. claim_id), reply[1] .. ' ' .. table.concat(taken, ' '), 'PX', MEMO)
end
if left then pass_on(ARGV, 5) end
reply[2], reply[3] = appointment(worker, CAP, alarm)
return reply
