-- summon: compute how many workers a pool is owed, and return one summons per worker to invoke.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/turns.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  pool         its name
-- ARGV  summons      22 to 64 random characters; the summonses are <summons>.1, <summons>.2 and so on
-- ARGV  n            workers that the caller can invoke now, at most 100; 0 reads and, without a leaver,
--                    writes nothing
-- ARGV  leaver       an idle worker of the pool that asks to leave, or ""
-- ARGV  queue ready running finished ended took …  the pool's queues in other partitions: jobs that wait and
--                    run now; jobs finished, attempts ended, and the ms these took, since the beginning
-- REPLY array        [summonses handed out; "leave" (it was removed from the crew), "stay", or "" without a
--                    leaver; settings; target; names and numbers of the sum: ready running rate (in 1000 s)
--                    run (ms) need (thousandths) wanted crew summoned owed]
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID NOT_FOUND

local SILENT = 12000                        -- ms without a heartbeat after which a worker does not count
local MEMORY = 10000                        -- ms that averages look back, at least
local RUNS = 20                             -- attempts that the mean duration looks back
local LEAST = 250                           -- ms between two updates of the averages
local START = 1                             -- s that a worker takes to start
local SPARE = 0.05                          -- the part of a worker for which no further one is started
local DURATION = 1000                        -- ms, the duration of an attempt before any has ended
local pool, summons, n, leaver = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local refused_because = refused(n, 100) or too_many((#ARGV - 4) / 6, 32)
if refused_because then return refused_because end
local elsewhere = {}                        -- queue of another partition → index of its arguments
local valid = is_name(pool) and is_name(summons) and #summons >= 22 and #summons <= 64
  and (leaver == '' or is_name(leaver))
for i = 5, #ARGV, 6 do
  elsewhere[ARGV[i]] = i
  for j = i + 1, i + 5 do valid = valid and ms(ARGV[j]) end
end
if not valid then
  return refusal('INVALID',
    'pool and leaver: use 1 to 128 of ' .. NAME .. '; summons: 22 to 64 of these; numbers: up to 14 digits')
end
local settings, target = string.match(call('HGET', key('pools'), pool) or '', '^%d+( [^\n]*)\n(.*)$')
local names = string.match(settings or '', ' queues=(%S+)')
if not names then return leaver ~= '' and {0, 'leave', '', ''} or refusal('NOT_FOUND', 'no pool ' .. pool) end
local function number(what, usual) return tonumber(setting(settings, what) or usual) end
local memory, crew_key, summons_key = key('pool:' .. pool), key('crew:' .. pool), key('summons:' .. pool)
local ready, running, finished, ended_now, took = 0, 0, 0, 0, 0
local function include(a, b, c, d, e)
  ready, running, finished, ended_now, took = ready + a, running + math.max(0, b), finished + c,
    ended_now + d, took + e
end
for name in string.gmatch(names, '[^,]+') do
  local queue = get_queue(name)
  local runs = tonumber(call('HGET', key('backlog'), name .. ' running') or 0) or 0
  if elsewhere[name] then
    include(unpack(ARGV, elsewhere[name] + 1, elsewhere[name] + 5))
  else
    local line = by_turns(name)
    include(line and line:startable() or setting(queue.settings, 'paused') and 0 or queue.length, runs, totals_of(name))
  end
end

-- The stored averages and their update: `rate`, jobs submitted per second; `mean`, ms of an attempt; `ran`,
-- ms for which jobs ran lately; `over`, attempts that ended in that time. An attempt that runs long and has
-- not ended yet counts through `ran`.
local before = call('HMGET', memory, 'at', 'came', 'ended', 'took', 'rate', 'run', 'ran', 'over', 'running',
  'came_at')
local function seen(i, usual) return tonumber(before[i] or usual) or usual end
local wait, slots, linger = number('wait', 5000), number('slots', 10), number('linger', 5000)
local passed = now - seen(1, now)
local came = finished + ready + running
local span = math.max(MEMORY, 2 * wait)
local rate, mean, ran, over = seen(5, 0), tonumber(before[6] or nil), seen(7, 0), seen(8, 0)
-- Below 0 the clock was set back: start again
local fresh = not before[1] or passed >= LEAST or passed < 0
local came_at = (ready > 0 or came ~= seen(2, -1)) and now or math.min(now, seen(10, now))
if before[1] and passed >= LEAST then
  local keep = math.exp(-passed / span)
  local more = math.max(0, ended_now - seen(3, ended_now))
  rate = rate * keep + math.max(0, came - seen(2, came)) * 1000 / passed * (1 - keep)
  local lasted = more > 0 and math.max(0, took - seen(4, took)) / more
  mean = lasted and (mean and mean + (lasted - mean) * (1 - math.exp(-more / RUNS)) or lasted) or mean
  ran = ran * keep + (seen(9, 0) + running) / 2 * span * (1 - keep)
  over = over * keep + more
end

-- Guests (see enlist) have negative scores. They count only as far as the running jobs need workers: names that
-- do nothing must not keep workers away.
local members = call('ZCOUNT', crew_key, now - SILENT, now + SILENT)
local guests = call('ZCOUNT', crew_key, -now - SILENT, SILENT - now)
local crew = math.max(members, math.min(members + guests, math.ceil(running / slots)))
local latest = string.format('%.0f', now + number('arrive', 15000))
-- A later score is from before the clock was set back
local out = call('ZCOUNT', summons_key, '(' .. stamp, latest)
local quiet = now - came_at
local typical = math.max(mean or DURATION, (ran + 5 * (mean or DURATION)) / (over + 5))
-- The average decays too slowly
local lately = quiet <= linger and rate or running > 0 and math.min(rate, 3000 / quiet) or 0
local need = math.max(running, math.min(lately * typical / 1000 + ready * typical / wait, ready + running + lately * START))
local wanted = math.min(number('max', 10), math.max(number('min', 0), math.ceil(need / slots - SPARE),
  ready > 0 and 1 or 0))
local owed = math.max(0, wanted - crew - out)
local says = {'ready', ready, 'running', running, 'rate', math.floor(lately * 1000), 'run',
  math.floor(typical),  'need', math.floor(need * 1000 + 0.5), 'wanted', wanted, 'crew', crew, 'summoned', out, 'owed', owed}
if n == 0 and leaver == '' then return {0, '', string.sub(settings, 2), target, unpack(says)} end

begin()
local word, given = '', 0
local averages = {'at', stamp, 'came', came, 'ended', ended_now, 'took', took, 'rate', rate,
  'run', mean or '', 'ran', ran, 'over', over}
call('HSET', memory, 'came_at', came_at, 'wanted', wanted, 'running', running,
  unpack(fresh and averages or {}))
-- The others must have slots to spare; the last worker leaves when nothing is left to do
if leaver ~= '' then
  local beat = tonumber(call('ZSCORE', crew_key, leaver) or nil)
  local here = beat and beat < 0 and members + guests or crew
  local room = need + math.max(0.3 * slots, math.sqrt(need)) <= (here - 1) * slots
  local idle = here == 1 and running == 0 and quiet >= linger
  word = (not beat or here > wanted and (room or idle)) and 'leave' or 'stay'
  if word == 'leave' then call('ZREM', crew_key, leaver) end
end
local lost = call('ZREMRANGEBYSCORE', summons_key, '-inf', stamp)
  + call('ZREMRANGEBYSCORE', summons_key, '(' .. latest, '+inf')
if lost > 0 then add(memory, 'lost', lost) end
-- a repeated call: count the summonses that it was given before
while given < n and call('ZSCORE', summons_key, summons .. '.' .. given + 1) do given = given + 1 end
for i = given + 1, given == 0 and math.min(n, owed) or 0 do
  given = call('ZADD', summons_key, latest, summons .. '.' .. i) and add(memory, 'summoned', 1) and i
end
return {given, word, string.sub(settings, 2), target, unpack(says)}
