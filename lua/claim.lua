-- claim: do a share of the maintenance, then take up to n jobs from the queues in order, under new leases.
--
-- LIBS  straight/claim.lua lib/base.lua lib/queue.lua lib/flow.lua lib/turns.lua lib/places.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/due.lua lib/claim.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  claim_id     22 to 64 random characters, the idempotency key: repeating it within 10 s returns the
--                    leases of the first call that are still held. A repeat with n > 0 also flags the memo
--                    (see release). One with an exclusive identity begins with the worker's life and a dot
-- ARGV  worker       the caller's name
-- ARGV  lease        ms until the leases end without a heartbeat
-- ARGV  n            jobs wanted, at most 100; 0 does the maintenance alone, and flags no memo
-- ARGV  queue …      the queues, at most 32, by priority. A pattern of names, `tenant-*` or `*`, yields no job:
--                    it keeps a wake-up list live, which gets the names of queues that begin so and have jobs
-- REPLY array        [token, ms until this worker should claim again (at most 2000), 1 if an occurrence of a
--                    schedule is due (see pick) or 0 and, if expired leases made jobs dead in this call, a
--                    line for each: id attempt queue task code; then per job: id, attempt, lease's end, spec, payload
--                    ("" if it is in spec), and "" for the first attempt, else the code of the last one (or
--                    ""), the tries left after this one and, if the lease of the last one ended without an
--                    outcome, the word lost, separated by blanks; then, if one left a checkpoint, a newline
--                    and the checkpoint]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID CHANGED

local CAP = 2000                            -- ms, at most, until this worker should claim again
local MEMO = 10000                          -- ms for which the claim's memo is kept
local BYTES = 1048576                       -- bytes of jobs in a reply, if it has more than one
local claim_id, worker, lease, n = ARGV[1], ARGV[2], ms(ARGV[3]), tonumber(ARGV[4])
local refused_because = refused(n, 100) or too_many(#ARGV - 4, 32)
if refused_because then return refused_because end
local names, follows, valid = names_and_patterns(5)
if not (valid and lease and is_name(worker) and is_name(claim_id) and #claim_id >= 22 and #claim_id <= 64) then
  return refusal('INVALID',
    'claim_id: use 22 to 64 of ' .. NAME .. '; worker and queues: 1 to 128 of these, a pattern * after 0 to 127; '
    .. 'lease: ms, up to 14 digits')
end

if is_barred(claim_id) then return refusal('CHANGED', 'worker ' .. worker .. ': another worker has taken over: claim no more') end
local reply = {'', CAP, 0}
local taken = {}                            -- ids of the jobs claimed
local leases = {}                           -- scores and ids for `running`
local waits = {}                            -- waiting times of a queue's jobs
local left, lost = false, 0                 -- was something taken from a queue? ids in one whose job does not exist
local bytes = 0                             -- of the jobs in the reply

local memo = call('GET', key('claim:' .. claim_id))
if memo then                                -- a repeated call: the jobs that still have its token
  local words = string.gmatch(memo, '[^ +]+')      -- the plus is the flag: no id contains one
  reply[1] = words()
  for id in words do
    local job = load(id)
    if not lease_answer(job, reply[1], 'claim') then
      add_lease(reply, id, tonumber(job.attempt), tonumber(call('ZSCORE', key('running'), id)), job.spec,
        job.tries_left)
    end
  end
  if n > 0 and not string.find(memo, '+', 1, true) then
    begin()
    call('APPEND', key('claim:' .. claim_id), ' +')
  end
  return reply
end
needs('SET', key('alarm'), '')
local alarm = call('GET', key('alarm'))
for _, name in ipairs(names) do
  get_queue(name)
  if flow(name) then call('ZCARD', flow(name).all) end
end
if #follows > 0 then renew_patterns(follows) end
maintain(10 + math.floor(n / 2), worker)

-- Claim one job, if `admit` allows it: "taken", "held" (it does not), "gone" (no queued job) or "full" (the reply is). It reads 4 fields.
local function take(id, score, admit)
  local hash = key('job:', id)
  local state, spec, attempts, tries_left = unpack(
    peek('HMGET', hash, 'state', 'spec', 'attempt', 'tries_left'))
  local rules, attempt = spec and read_header(spec) or {}, whole_number(attempts, 0) + 1
  if state ~= 'queued' or not rules.queue then
    if not state then lost = lost + 1 end
    return 'gone'
  end
  local cost = admit and admit(rules)
  if cost == false then return 'held' end
  if bytes > 0 and not string.find(spec, '\n', 1, true)
      and bytes + call('HSTRLEN', hash, 'payload') > BYTES then
    n = 0                                   -- the other queues neither
    return 'full'
  end
  local expires, left_after = lease_end(lease, now, rules.timeout), digits(whole_number(tries_left, rules.tries) - 1)
  if reply[1] == '' then reply[1] = new_fence() .. '.' .. claim_id end
  call('HSET', hash, 'state', 'running', 'token', reply[1], 'attempt', digits(attempt),
    'tries_left', left_after, 'worker', worker, 'claimed_at', stamp, 'rank', score, unpack(cost and {'held', cost} or {}))
  leases[#leases + 1], leases[#leases + 2], taken[#taken + 1] = digits(expires), id, id
  if attempt == 1 then observe(waits, waiting_time(rules)) end
  bytes = bytes + add_lease(reply, id, attempt, expires, spec, left_after)
  return 'taken'
end
local function take_first(name)
  local head, gone = first_jobs(name, n - #taken), {}
  for j = 1, #head, 2 do
    if take(head[j], head[j + 1]) == 'full' then break end
    gone[#gone + 1] = head[j]
  end
  if #gone == 0 then return end
  left = true
  call('ZREM', key('queue:' .. name), unpack(gone))
end
for _, name in ipairs(names) do
  local line, before = by_turns(name), #taken
  if not line then take_first(name) elseif line:serve(n - before, take) then look_over(line, #taken - before) end
  if #taken > before then add_running(name, #taken - before) end
  if waits.ms then
    tally(name, 'wait', waits)
    waits = {}
  end
  if lost > 0 then
    backlog(name, -lost, 0)
    count('missing', lost)
    lost = 0
  end
end
if #taken > 0 then
  call('ZADD', key('running'), unpack(leases))
  event(taken, 'running', worker)
  call('SET', key('claim:' .. claim_id), reply[1] .. ' ' .. table.concat(taken, ' '), 'PX', MEMO)
end
for _, name in ipairs(names) do wake_next(name, left or #taken > 0) end
reply[2], reply[3] = appointment(worker, CAP, alarm)
for _, name in ipairs(names) do
  if by_turns(name) then reply[2] = by_turns(name):appoint(worker, reply[2]) end
end
if #buried > 0 then reply[3] = reply[3] .. '\n' .. table.concat(buried, '\n') end
return reply
