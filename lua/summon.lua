-- summon: how many workers is a pool owed? Hand out summonses for them: whoever gets some has to invoke so many workers.
--
-- LIBS  lib/base.lua lib/queue.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  pool         its name
-- ARGV  summons      22 to 64 random characters; the summonses are <summons>.1, <summons>.2 and so on
-- ARGV  n            workers that the caller can invoke now, at most 100; 0 looks, and writes nothing (where nobody leaves)
-- ARGV  leaver       a worker of the pool that is idle and asks to go, or ""
-- ARGV  queue ready running finished ended took …  those of its queues that live in other partitions: jobs that wait and run now;
--                    jobs finished, attempts ended, and the ms these took, since the beginning
-- REPLY array        [summonses handed out; "leave" (it is on the crew no more), "stay", or "" where nobody asked; settings; target;
--                    names and numbers of the sum: ready running rate (in 1000 s) run (ms) need (thousandths) wanted crew summoned owed]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID NOT_FOUND

local SILENT, MEMORY, RUNS, LEAST = 12000, 10000, 20, 250 -- ms; ms and attempts that averages look back, at least; ms between two looks
local START, SPARE, UNKNOWN = 1, 0.05, 1000 -- s a worker takes to start; of a worker, too little to keep one for; ms, a run not yet seen
local pool, summons, n, leaver = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local refused_because = refused(n, 100) or beyond((#ARGV - 4) / 6, 32)
if refused_because then return refused_because end
local elsewhere, fit = {}, is_name(pool) and is_name(summons) and #summons >= 22 and #summons <= 64 and (leaver == '' or is_name(leaver))
for i = 5, #ARGV, 6 do elsewhere[ARGV[i]] = i for j = i + 1, i + 5 do fit = fit and ms(ARGV[j]) end end
if not fit then return refusal('INVALID', 'names are of A-Z a-z 0-9 _ . : -, summons of 22 to 64, numbers have up to 14 digits') end
local settings, target = string.match(call('HGET', key('pools'), pool) or '', '^%d+( [^\n]*)\n(.*)$')
local names = string.match(settings or '', ' queues=(%S+)')
if not names then return leaver ~= '' and {0, 'leave', '', ''} or refusal('NOT_FOUND', 'no pool ' .. pool) end
local function number(what, usual) return tonumber(setting(settings, what) or usual) end
local memory, crew_key, summons_key = key('pool:' .. pool), key('crew:' .. pool), key('summons:' .. pool)
local ready, running, finished, ended_now, took = 0, 0, 0, 0, 0
local function include(a, b, c, d, e)
  ready, running, finished, ended_now, took = ready + a, running + math.max(0, b), finished + c, ended_now + d, took + e
end
for name in string.gmatch(names, '[^,]+') do
  local queue, runs = look_at(name), tonumber(call('HGET', key('backlog'), name .. ' running') or 0) or 0
  if elsewhere[name] then include(unpack(ARGV, elsewhere[name] + 1, elsewhere[name] + 5))
  else include(setting(queue.settings, 'paused') and 0 or queue.length, runs, past(name)) end
end

-- What was seen before, and the averages that follow: jobs that come in a second, the ms that an attempt takes, the ms for which
-- jobs have run of late, and how many attempts ended in them: what runs for long and does not end counts as long.
local before = call('HMGET', memory, 'at', 'came', 'ended', 'took', 'rate', 'run', 'ran', 'over', 'running', 'came_at')
local function seen(i, usual) return tonumber(before[i] or usual) or usual end
local wait, slots, linger = number('wait', 5000), number('slots', 10), number('linger', 5000)
local passed, came, span = now - seen(1, now), finished + ready + running, math.max(MEMORY, 2 * wait)
local rate, mean, ran, over = seen(5, 0), tonumber(before[6] or nil), seen(7, 0), seen(8, 0)
local fresh = not before[1] or passed >= LEAST or passed < 0     -- the clock was set back: begin anew
local came_at = (ready > 0 or came ~= seen(2, -1)) and now or math.min(now, seen(10, now))
if before[1] and passed >= LEAST then
  local keep, more = math.exp(-passed / span), math.max(0, ended_now - seen(3, ended_now))
  rate = rate * keep + math.max(0, came - seen(2, came)) * 1000 / passed * (1 - keep)
  local lasted = more > 0 and math.max(0, took - seen(4, took)) / more
  mean = lasted and (mean and mean + (lasted - mean) * (1 - math.exp(-more / RUNS)) or lasted) or mean
  ran, over = ran * keep + (seen(9, 0) + running) / 2 * span * (1 - keep), over * keep + more
end

local crew, latest = call('ZCOUNT', crew_key, now - SILENT, now + SILENT), string.format('%.0f', now + number('arrive', 15000))
local out = call('ZCOUNT', summons_key, '(' .. stamp, latest)    -- what is later was before the clock was set back
local quiet, typical = now - came_at, math.max(mean or UNKNOWN, (ran + 5 * (mean or UNKNOWN)) / (over + 5))
local lately = quiet <= linger and rate or running > 0 and math.min(rate, 3000 / quiet) or 0   -- an average outlives its jobs
local need = math.max(running, math.min(lately * typical / 1000 + ready * typical / wait, ready + running + lately * START))
local wanted = math.min(number('max', 10), math.max(number('min', 0), math.ceil(need / slots - SPARE), ready > 0 and 1 or 0))
local owed, word, given = math.max(0, wanted - crew - out), '', 0
local says = {'ready', ready, 'running', running, 'rate', math.floor(lately * 1000), 'run', math.floor(typical),
  'need', math.floor(need * 1000 + 0.5), 'wanted', wanted, 'crew', crew, 'summoned', out, 'owed', owed}
if n == 0 and leaver == '' then return {0, '', string.sub(settings, 2), target, unpack(says)} end

begin()
local averages = {'at', stamp, 'came', came, 'ended', ended_now, 'took', took, 'rate', rate, 'run', mean or '', 'ran', ran, 'over', over}
call('HSET', memory, 'came_at', came_at, 'wanted', wanted, 'running', running, unpack(fresh and averages or {}))
if leaver ~= '' then                        -- the others must have room, and some to spare; the last one goes when all is quiet
  local room, idle = need + math.max(0.3 * slots, math.sqrt(need)) <= (crew - 1) * slots, crew == 1 and running == 0 and quiet >= linger
  word = (not call('ZSCORE', crew_key, leaver) or crew > wanted and (room or idle)) and 'leave' or 'stay'
  if word == 'leave' then call('ZREM', crew_key, leaver) end
end
local lost = call('ZREMRANGEBYSCORE', summons_key, '-inf', stamp) + call('ZREMRANGEBYSCORE', summons_key, '(' .. latest, '+inf')
if lost > 0 then add(memory, 'lost', lost) end
while given < n and call('ZSCORE', summons_key, summons .. '.' .. given + 1) do given = given + 1 end   -- sent again
for i = given + 1, given == 0 and math.min(n, owed) or 0 do
  given = call('ZADD', summons_key, latest, summons .. '.' .. i) and add(memory, 'summoned', 1) and i
end
return {given, word, string.sub(settings, 2), target, unpack(says)}
