-- repair: check whether all stored data of a thing agrees, and repair it, e.g. after an eviction or a DEL.
--
-- LIBS  lib/base.lua lib/queue.lua lib/integrity.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  how          "mend", or "look": the same answers, and nothing is written
-- ARGV  seen_in id …  what to check, in twos, at most 100, each with where it was seen, after the base: job,
--                    one of the structures, queue:<queue> or key:<queue>|<key> with a job's id; worker,
--                    schedule or pool with its name
-- REPLY array        one per two: "sound", or its faults, separated by commas: "placed <structure> <ms>" (it
--                    was in no structure, or had an invalid score; the moment of its submit), "stray" (it was
--                    in a wrong structure), "lost" (the remains are not usable: deleted), "restated" (its
--                    state or a number was missing or invalid), "locked" and "unlocked" (its key), "listed"
--                    (its queue), "numbered" (seq or fence was below its own), "foreign" (a wrong type, or a
--                    header with an invalid rule: not changed)
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
  if queue then get_queue(queue) end
  if beside then call(seen_in == 'pool' and 'HLEN' or 'ZCARD', key(beside)) else inspect(id) end
end
if not fit then
  return refusal('INVALID',
    'use how look or mend, and seen_in job, worker, schedule, pool, key: or a structure')
end
set_mode(how)

-- Check something that has a hash and a score in a sorted set: neither may exist without the other.
local function check_pair(hash, zset, name, whole, score)
  local stands, left = call('ZSCORE', key(zset), name), leftover(hash)
  if left == 'foreign' then return fix('foreign') end
  -- Its occurrence would never be due
  local missed = not valid_score(stands) or stands == NEVER and score ~= NEVER
  if whole and missed then fix('placed ' .. zset .. ' ' .. score, 'ZADD', key(zset), score, name) end
  if stands and not whole then fix('stray', 'ZREM', key(zset), name) end
  if left and not whole then fix('lost', 'DEL', hash) end
end

local function check_worker(name)
  local life, since = unpack(peek('HMGET', key('worker:' .. name), 'life', 'enlisted_at'))
  -- An enlist that stopped half-way leaves less
  local whole = is_name(name) and life and ms(since)
  check_pair(key('worker:' .. name), 'workers', name, whole, since)
end
local function check_schedule(name)
  local v = peek('HMGET', key('schedule:' .. name), 'revision', 'occurrence', 'plan', 'queue', 'task',
    'paused')
  local whole = v[1] and v[3] and v[4] and v[5] and (v[2] == '' or ms(v[2] or nil))
  check_pair(key('schedule:' .. name), 'schedules', name, whole,
    (v[6] == '1' or v[2] == '') and NEVER or v[2])
end
local function check_pool(name)             -- a removed pool must leave nothing behind
  local left = {key('pool:' .. name), key('crew:' .. name), key('summons:' .. name)}
  local there = call('HEXISTS', key('pools'), name) == 1 or call('EXISTS', unpack(left)) == 0
  if not there then fix('lost', 'DEL', unpack(left)) end
end

local check = {worker = check_worker, schedule = check_schedule, pool = check_pool}
local answers = {}
for i = 2, #ARGV, 2 do
  start_item()
  local one = check[ARGV[i]] or check_job
  one(ARGV[i + 1], ARGV[i])
  answers[#answers + 1] = verdict()
end
return answers
