-- summon: how many workers is a pool owed? Hand out summonses for them: whoever gets some has to invoke so many workers.
--
-- KEYS  base         the hash of partition 0, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  pool         its name
-- ARGV  summons      22 to 64 random characters; the summonses are <summons>.1, <summons>.2 and so on
-- ARGV  n            workers that the caller can invoke now, at most 100; 0 looks, and writes nothing (where nobody leaves)
-- ARGV  leaver       a worker of the pool that is idle and asks to go, or ""
-- ARGV  queue ready running finished ended took …  those of its queues that live in other partitions: jobs that wait and that run
--                    now; jobs finished, attempts ended, and the ms these took, since the beginning
-- REPLY array        [summonses handed out; "leave" (it is on the crew no more) or "stay" for the leaver, "" for none; the settings;
--                    the target; then names and numbers of the sum: ready running rate (jobs that come in 1000 s) run (ms an
--                    attempt takes) wanted crew summoned owed, the last before these were handed out]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID NOT_FOUND

local SILENT, MEMORY, RUNS, LEAST = 12000, 10000, 20, 250 -- ms; ms and attempts that an average looks back; ms between two looks
local START, SPARE, UNKNOWN = 1, 0.05, 1000 -- s a worker takes to start; of a worker, too little to keep one for; ms, a run not yet seen
local pool, summons, n, leaver = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local refused_because = refused(n, 100) or beyond((#ARGV - 4) / 6, 32)
if refused_because then return refused_because end
if not is_name(pool) or not is_name(summons) or #summons < 22 or #summons > 64 or not leaver then
  return refusal('INVALID', 'names are of A-Z a-z 0-9 _ . : -, summons of 22 to 64')
end
local revision, settings, target = string.match(call('HGET', key('pools'), pool) or '', '^(%d+)( [^\n]*)\n(.*)$')
if not revision then return leaver ~= '' and {0, 'leave', '', ''} or refusal('NOT_FOUND', 'no pool ' .. tostring(pool)) end
local function number(what, usual) return tonumber(setting(settings, what) or usual) end
local memory, crew_key, summons_key = key('pool:' .. pool), key('crew:' .. pool), key('summons:' .. pool)
call('HLEN', memory)

local sum = {ready = 0, running = 0, finished = 0, ended = 0, took = 0}
local function include(ready, running, finished, ended, took)
  sum.ready, sum.running, sum.finished = sum.ready + ready, sum.running + math.max(0, running), sum.finished + finished
  sum.ended, sum.took = sum.ended + ended, sum.took + took
end
local elsewhere = {}
for i = 5, #ARGV, 6 do elsewhere[ARGV[i]] = true include(unpack(ARGV, i + 1, i + 5)) end
for name in string.gmatch(string.match(settings, ' queues=(%S+)'), '[^,]+') do
  local queue, running = look_at(name), tonumber(call('HGET', key('backlog'), name .. ' running') or 0) or 0
  if not elsewhere[name] then include(setting(queue.settings, 'paused') and 0 or queue.length, running, past(name)) end
end

-- What was seen before, and the averages that follow: jobs that come in a second, and the ms that an attempt takes.
local before = call('HMGET', memory, 'at', 'came', 'ended', 'took', 'rate', 'run')
local passed, came = now - (before[1] or now), sum.finished + sum.ready + sum.running
local rate, run = tonumber(before[5] or 0), tonumber(before[6] or nil)
local fresh = not before[1] or passed >= LEAST
if before[1] and fresh then
  local keep, more = math.exp(-passed / MEMORY), math.max(0, sum.ended - before[3])
  rate = rate * keep + math.max(0, came - before[2]) * 1000 / passed * (1 - keep)
  local mean = more > 0 and math.max(0, sum.took - before[4]) / more
  run = mean and (run and run + (mean - run) * (1 - math.exp(-more / RUNS)) or mean) or run
end

local crew, out = call('ZCOUNT', crew_key, now - SILENT, '+inf'), call('ZCOUNT', summons_key, '(' .. stamp, '+inf')
local typical, slots = run or UNKNOWN, number('slots', 10)
local need = math.min(rate * typical / 1000 + sum.ready * typical / number('wait', 5000), sum.ready + sum.running + rate * START)
local wanted = math.max(math.ceil(need / slots - SPARE), sum.ready > 0 and 1 or 0)
wanted = math.min(number('max', 10), math.max(number('min', 0), wanted))
local owed, word, given = math.max(0, wanted - crew - out), '', 0
local says = {'ready', sum.ready, 'running', sum.running, 'rate', math.floor(rate * 1000), 'run', math.floor(typical), 'wanted', wanted,
  'crew', crew, 'summoned', out, 'owed', owed}
if n == 0 and leaver == '' then return {0, '', string.sub(settings, 2), target, unpack(says)} end

begin()
if fresh then
  call('HSET', memory, 'at', stamp, 'came', came, 'ended', sum.ended, 'took', sum.took, 'rate', rate, 'run', run or '')
end
if leaver ~= '' then
  word = (not call('ZSCORE', crew_key, leaver) or crew > wanted) and 'leave' or 'stay'
  if word == 'leave' then call('ZREM', crew_key, leaver) end
end
local lost = call('ZREMRANGEBYSCORE', summons_key, '-inf', stamp)
if lost > 0 then add(memory, 'lost', lost) end
while given < n and call('ZSCORE', summons_key, summons .. '.' .. given + 1) do given = given + 1 end   -- sent again
if given == 0 then
  given = math.min(n, owed)
  for i = 1, given do call('ZADD', summons_key, string.format('%.0f', now + number('arrive', 15000)), summons .. '.' .. i) end
  if given > 0 then add(memory, 'summoned', given) end
end
return {given, word, string.sub(settings, 2), target, unpack(says)}
