-- release: give jobs back unfinished (a shutdown, a snooze, the wrong worker). The try is given back, too.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id token delay code reason …   the leases, in fives, at most 100; delay in ms, 0 for the old place in
--                    the queue; code: "released", "unknown_task" (sets its own delay: 1 s, doubling to 60 s) or
--                    "abandoned" (the claim's caller left, and may have repeated the claim elsewhere: refused if
--                    the claim was repeated, or its memo has expired); reason is free text
-- REPLY array        one per lease: "queued", "scheduled <ms>", "dead" (the 20th unknown_task in a row; releases
--                    without delay do not interrupt the row), "cancelled", "LEASE_LOST" or "NOT_FOUND"; after 100
--                    releases in a row, one counts as a failure
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local RELEASES = 100                        -- in a row; the next one counts as a failure
local UNKNOWN = 20                          -- unknown_task in a row: the job is dead
local CODES = {released = 'released', unknown_task = 'unknown_task', abandoned = 'released'} -- as recorded
local refused_because = refused(#ARGV / 5, 100)
if refused_because then return refused_because end
for i = 1, #ARGV, 5 do
  local code = ARGV[i + 3]
  if not CODES[code] then
    return refusal('INVALID', 'code ' .. string.sub(code, 1, 40) .. ': use released, unknown_task or abandoned')
  end
  load_movable(ARGV[i])
end
begin()

local function give_back(job, delay, code, reason)
  local unknown, since = string.match(job.streak or '', '^(unknown_task %d+) ?(.*)$')
  if unknown then job.streak = code == 'unknown_task' and unknown or since end
  local n = in_a_row(job, code)
  local ending = {verb = 'release', code = code, streak = code .. ' ' .. n, message = reason, detail = ''}
  if unknown and code == 'released' and delay == 0 then ending.streak = unknown .. ' ' .. ending.streak end
  count('released', 1)
  if code == 'unknown_task' then
    count('unknown_task', 1)
    delay = math.min(1000 * 2 ^ (n - 1), 60000)
    job.tries_left = job.tries_left + 1
    ending.final = n == UNKNOWN
  elseif n > RELEASES then
    ending.streak, delay = nil, nil
  else
    job.tries_left = job.tries_left + 1
  end
  return try_again(job, ending, delay)
end

-- The claim's caller left. May a repeat of the claim have returned the same leases to another caller?
local function is_wanted(token)
  local memo = peek('GET', key('claim:' .. (string.match(token, '%.(.+)$') or '')))
  return type(memo) ~= 'string' or string.find(memo, '+', 1, true)     -- without a memo, that is not known
end

local answers, late = {}, 0
for i = 1, #ARGV, 5 do
  local id, token, delay, code, reason = unpack(ARGV, i, i + 4)
  local job = load(id)
  local wait = math.floor(math.min(math.max(0, tonumber(delay) or 0), 1e13))
  local answer = lease_answer(job, token, 'release')
  if not answer and code == 'abandoned' and is_wanted(token) then answer = 'LEASE_LOST' end
  if answer == 'LEASE_LOST' then late = late + 1 end
  answers[#answers + 1] = answer or give_back(job, wait, CODES[code], reason)
end
sum_up()
count('lease_lost', late)
return answers
