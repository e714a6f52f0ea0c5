-- repair: check whether the keys of a job agree, and put it where its state says, e.g. after an eviction.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/members.lua lib/integrity.lua lib/outstanding.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  how          "mend", or "look": the same answers, and nothing is written
-- ARGV  seen_in id …  what to check, in twos, at most 100, each with where it was seen, after the base: job,
--                    one of the structures, queue:<queue>, grouped:<queue> or key:<queue>|<key> with a job's id; worker,
--                    schedule, pool or workflow with its name; edges with the id of an upstream; stream with its job's
-- REPLY array        one per two: "sound", or its faults, separated by commas. Repaired: "placed <structure>
--                    <ms>" (it was in no structure, or had an invalid score; the moment of its submit),
--                    "stray" (it was in a wrong structure), "grouped" (its
--                    group's set), "held" (its place), "gone" (an entry of an unfinished job that does
--                    not exist), "locked" and "unlocked" (its key), "listed" (its queue), "numbered" (seq or
--                    fence was below its own), "unsettled" (edges that are due were forgotten), "settled" (a
--                    mark of edges that are not there), "needs <n>" (it counted other edges; these
--                    are there), "member" (how its workflow counts it), "ended" (whether a workflow has), "steps"
--                    (their number), "called" (the edge of a called job was lost, or that job), "orphaned"
--                    (a stream that does not expire, without its job). Only reported: "broken <field>" (no script
--                    writes it so; of a job, lease means the fields of its lease), "foreign" (a hash of a wrong type)
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local BESIDE = {worker = 'workers', schedule = 'schedules', pool = 'pools'}
local LINKED = {edges = true, workflow = true, stream = true}
local how = ARGV[1]
needs('SET', key('key:'), '')
needs('PTTL', key('key:'))
local refused_because = refused((#ARGV - 1) / 2, 100)
if refused_because then return refused_because end
local fit = how == 'look' or how == 'mend'
for i = 2, #ARGV, 2 do
  local seen_in, id = ARGV[i], ARGV[i + 1]
  local queue, beside = string.match(seen_in, '^queue:(.+)$') or string.match(seen_in, '^grouped:(.+)$'), BESIDE[seen_in]
  fit = fit and (beside or queue or LINKED[seen_in] or seen_in == 'job' or sizes[seen_in] or string.find(seen_in, '^key:.'))
  if queue then get_queue(queue) end
  if string.find(seen_in, '^key:') then call('GET', key(seen_in)) end
  if beside then call(seen_in == 'pool' and 'HLEN' or 'ZCARD', key(beside)) elseif not LINKED[seen_in] then inspect(id) end
end
if not fit then
  return refusal('INVALID',
    'use how look or mend, and seen_in job, worker, schedule, pool, workflow, edges, stream, key: or a structure')
end
set_mode(how)

-- A registered worker has a hash and an entry; a repair leaves both to its next heartbeat.
local function check_worker(name)
  local life, since = unpack(peek('HMGET', key('worker:' .. name), 'life', 'enlisted_at'))
  local whole = is_name(name) and life and ms(since)      -- an enlist that stopped half-way leaves less
  local stands = call('ZSCORE', key('workers'), name)
  if (stands or call('EXISTS', key('worker:' .. name)) == 1) and not (whole and valid_score(stands)) then
    fix('broken registration')
  end
end

-- Put a schedule where its fields say: without an entry, its occurrence would never be due.
local function check_schedule(name)
  local v = peek('HMGET', key('schedule:' .. name), 'revision', 'occurrence', 'plan', 'queue', 'task',
    'paused')
  local whole = v[1] and v[3] and v[4] and v[5] and (v[2] == '' or ms(v[2] or nil))
  local stands = call('ZSCORE', key('schedules'), name)
  if not whole then
    if stands or call('EXISTS', key('schedule:' .. name)) == 1 then fix('broken schedule') end
    return
  end
  local score = (v[6] == '1' or v[2] == '') and NEVER or v[2]
  if not valid_score(stands) or stands == NEVER and score ~= NEVER then
    fix('placed schedules ' .. score, 'ZADD', key('schedules'), score, name)
  end
end

-- A removed pool must leave nothing behind.
local function check_pool(name)
  local left = call('EXISTS', key('pool:' .. name), key('crew:' .. name), key('summons:' .. name))
  if left > 0 and call('HEXISTS', key('pools'), name) == 0 then fix('broken pool') end
end

-- A stream expires with its job: without it, nothing would ever delete it.
local function check_stream(id)
  local stream = key('stream:', id)
  if call('EXISTS', key('job:', id)) == 0 and call('PTTL', stream) == -1 then fix('orphaned', 'DEL', stream) end
end

local check = {worker = check_worker, schedule = check_schedule, pool = check_pool, edges = check_edges, workflow = check_workflow,
  stream = check_stream}
local answers = {}
for i = 2, #ARGV, 2 do
  start_item()
  local one, seen_in, id = check[ARGV[i]], ARGV[i], ARGV[i + 1]
  local marks = seen_in == 'scheduled' and string.match(id, '^>(.+)$')
  if marks then
    check_edges(marks)
  elseif one then
    one(id)
  else
    check_job(id, seen_in)
    check_linked(id)
  end
  answers[#answers + 1] = verdict()
end
return answers
