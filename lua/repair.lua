-- repair: look whether all that is stored of something wrongs the same, and mend it: after an eviction, a bad restore, a stranger's DEL.
--
-- LIBS  lib/base.lua lib/queue.lua lib/integrity.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  how          "mend", or "look": the same answers, and nothing is written
-- ARGV  seen_in id …  what to look at, in twos, at most 100, each with where it was seen, after the base: job, one of the structures,
--                    queue:<queue> or key:<queue>|<key> with a job's id; worker, schedule or pool with its name
-- REPLY array        one per two: "sound", or what was wrong, with commas between: "placed <structure> <ms>" (it was in none, or with
--                    a score that cannot be; submitted at), "stray" (it was in one too many), "lost" (what was left is of no use:
--                    removed), "restated" (its state was lost, or a number), "locked" and "unlocked" (its key), "listed" (its queue),
--                    "numbered" (seq, or fence, was less than its own), "foreign" (of a wrong type, or with a header that cannot
--                    be: left alone)
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local BESIDE = {worker = 'workers', schedule = 'schedules', pool = 'pools'}
local how = ARGV[1]
needs('SET', key('key:'), '')
needs('PTTL', key('key:'))
local refused_because = refused((#ARGV - 1) / 2, 100)
if refused_because then return refused_because end
local fit = how == 'look' or how == 'mend'
for i = 2, #ARGV, 2 do
  local seen_in, id = ARGV[i], ARGV[i + 1]
  local queue, beside = string.match(seen_in, '^queue:(.+)$'), BESIDE[seen_in]
  fit = fit and (beside or queue or seen_in == 'job' or sizes[seen_in] or string.find(seen_in, '^key:.'))
  if queue then look_at(queue) end
  if beside then call(seen_in == 'pool' and 'HLEN' or 'ZCARD', key(beside)) else inspect(id) end
end
if not fit then return refusal('INVALID', 'how is look or mend, and what was seen is in a structure, or one of its own') end
begin_with(how)

-- What has a hash, and a moment in a zset: none is without the other.
local function check_pair(hash, zset, name, whole, score)
  local stands, left = call('ZSCORE', key(zset), name), remains(hash)
  if left == 'foreign' then return amend('foreign') end
  local missed = not stands_at(stands) or stands == NEVER and score ~= NEVER     -- its occurrence would never come
  if whole and missed then amend('placed ' .. zset .. ' ' .. score, 'ZADD', key(zset), score, name) end
  if stands and not whole then amend('stray', 'ZREM', key(zset), name) end
  if left and not whole then amend('lost', 'DEL', hash) end
end

local function check_worker(name)
  local life, since = unpack(peek('HMGET', key('worker:' .. name), 'life', 'enlisted_at'))
  local whole = is_name(name) and life and ms(since)                     -- half is an enlist's that stopped
  check_pair(key('worker:' .. name), 'workers', name, whole, since)
end
local function check_schedule(name)
  local v = peek('HMGET', key('schedule:' .. name), 'revision', 'occurrence', 'plan', 'queue', 'task', 'paused')
  local whole = v[1] and v[3] and v[4] and v[5] and (v[2] == '' or ms(v[2] or nil))
  check_pair(key('schedule:' .. name), 'schedules', name, whole, (v[6] == '1' or v[2] == '') and NEVER or v[2])
end
local function check_pool(name)             -- one that is there no more leaves nothing behind
  local left = {key('pool:' .. name), key('crew:' .. name), key('summons:' .. name)}
  local there = call('HEXISTS', key('pools'), name) == 1 or call('EXISTS', unpack(left)) == 0
  if not there then amend('lost', 'DEL', unpack(left)) end
end

local check, answers = {worker = check_worker, schedule = check_schedule, pool = check_pool}, {}
for i = 2, #ARGV, 2 do
  next_one()
  local one = check[ARGV[i]] or check_job
  one(ARGV[i + 1], ARGV[i])
  answers[#answers + 1] = verdict()
end
return answers
