-- submit: store jobs, queued or scheduled. If the id or key is in use, the answer is the job that exists.
--
-- LIBS  straight/submit.lua lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/conflict.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id queue task rules payload …   the jobs, in fives; rules are words, "" when all is default:
--                    priority=-100…100  delay=ms or at=ms since 1970  key=K [window=ms]  tries=N
--                    timeout=ms|none  stall=ms  retention=ms  backoff=first ms:factor:cap ms
--                    tags=T[,T…], up to 5  keep=1 (keep the payload after completion)
--                    group=G  cost=N (see configure)  trace=traceparent  digest=hexadecimal
--                    schedule=name  known=1 (store nothing: "NOT_FOUND" unless the id or key is in use)
--                    debounce=ms [at_most=ms] or on_conflict=replace|cancel_running, with a key
--                    onto=id (replace no other waiting job than this one)
-- REPLY array        one per job: "created", "exists <id>", "replaced <id>" (this waiting job has got the arguments),
--                    "holder <id>" (this job waits, and is not that of onto), "QUEUE_FULL …", "INVALID …" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

needs('SET', key('key:'), '')
local refused_because = refused(#ARGV / 5, 200, 'scheduled')
if refused_because then return refused_because end
local seen = {}                             -- ids and locks that this call has taken
local jobs = {}                             -- jobs to store
local answers = {}
local QUEUES = 100000                       -- queues that are known, unless configured
local named = 0                             -- new queues of this call
local turned_away = 0                       -- jobs that their queue's limits refuse

-- Check one job before anything is written. Returns the answer; a new job is added to `jobs`.
local function examine(id, queue, task, rules, payload)
  if #id > 64 or not (is_name(id) and is_name(queue) and is_name(task)) then
    return 'INVALID names must be 1 to 128 (ids: to 64) of ' .. NAME
  end
  local unfit, advice = invalid_rule(rules)
  if unfit then return 'INVALID rule ' .. unfit .. advice end
  if seen[id] or call('EXISTS', key('job:', id)) == 1 then return 'exists ' .. id end
  local header = read_header(queue .. ' ' .. task .. ' ' .. stamp .. (rules == '' and '' or ' ' .. rules))
  local due = tonumber(header.at or header.delay and now + header.delay or 0)
  local job = {id = id, rules = header, payload = payload, due = due}
  local grows, old, ruled, wrong, lock = #payload
  if rules ~= '' then ruled, wrong = conflict_rule(header) end
  if wrong then return wrong end
  if header.key then
    lock = key('key:' .. queue .. '|', header.key)
    job.lock = lock
    local holder = seen[job.lock] or call('GET', job.lock)
    local stands = holder and (seen[holder] or call('EXISTS', key('job:', holder)) == 1 or call('PTTL', job.lock) > 0)
    if stands and not ruled then return 'exists ' .. holder end
    if ruled then
      local answer = meet(job, holder)
      if answer then return answer end
      id, old, grows = job.id, job.old, job.grows or grows
    end
  end
  if header.known then return 'NOT_FOUND' end
  local where = get_queue(queue)
  job.by_turns = header.group or where.by_turns
  if job.by_turns then check_flow(job) end
  if old then check_flow(old) end
  local no_room = full(where, grows, old)
  if not no_room and not where.settings and where.jobs == 0 and not old then
    local most = tonumber(setting(call('HGET', key('queues'), '*'), 'queues') or QUEUES)
    if call('HLEN', key('queues')) + named < most then
      named = named + 1
    else
      no_room = 'QUEUE_FULL queue ' .. queue .. ' is new, and there are ' .. most .. ' queues, the most'
    end
  end
  if no_room then
    turned_away = turned_away + 1
    return no_room
  end
  where.jobs, where.bytes = old and where.jobs or where.jobs + 1, where.bytes + grows
  seen[id], seen[lock or id] = id, id
  if lock then add_pending(job, jobs) else jobs[#jobs + 1] = job end
  return old and 'replaced ' .. id or 'created'
end
for i = 1, #ARGV, 5 do answers[#answers + 1] = examine(unpack(ARGV, i, i + 4)) end
if #jobs == 0 and turned_away > 0 then begin() end      -- count them when memory is full, too
count('queue_full', turned_away)
if #jobs == 0 then return answers end

local places = {}                           -- structure → its new members
local moved = {}                            -- state → ids
local wanted = {}                           -- queue → has it work now?
local grouped = {}                          -- queue with groups or limits → the groups of new jobs
local seq = next_seq(#jobs) - #jobs
local function add_to_group(job, queue, group, score)
  if group then
    local members, name = places['grouped:' .. queue] or {}, 'grouped:' .. queue
    places[name], members[#members + 1], members[#members + 2] = members, score, job.id
  end
  grouped[queue] = grouped[queue] or {}
  grouped[queue][group or ''] = true
end
for i, job in ipairs(jobs) do
  local rules = job.rules
  local state, turn, is_new = job.due > now and 'scheduled' or 'queued', seq + i, true
  if job.ruled then state, turn, is_new = take_place(job, state, turn) end
  local is_queued, queue, group = state == 'queued', rules.queue, rules.group
  call('HSET', key('job:', job.id), 'state', state, as_spec(rules.header, job.payload))
  if rules.tags then note_tags(job) end
  if job.lock then call('SET', job.lock, job.id, unpack(rules.window and {'PX', rules.window} or {})) end
  local structure, score = state, job.due
  if is_queued then
    structure = group and 'waiting:' .. queue .. '|' .. group or 'queue:' .. queue
    score = rank(rules.priority, turn)
    if job.by_turns then add_to_group(job, queue, group, score) end
  end
  local members, ids = places[structure] or {}, moved[state] or {}
  if is_new then ids[#ids + 1], moved[state] = job.id, ids end
  wanted[queue] = wanted[queue] or is_queued
  places[structure], members[#members + 1], members[#members + 2] = members, score, job.id
end
for structure, members in pairs(places) do call('ZADD', key(structure), unpack(members)) end
local created = 0
for state, ids in pairs(moved) do
  event(ids, state, 'submitted')
  created = created + #ids
end
local head = places.scheduled and call('ZRANGE', key('scheduled'), 0, 0)[1]
for name, now_or_soon in pairs(wanted) do
  local queue = get_queue(name)
  if not queue.settings then call('HSET', key('queues'), name, '') end
  backlog(name, queue.jobs, queue.bytes)
  if grouped[name] then flow(name, true):arrived(grouped[name]) elseif now_or_soon then wake(name) end
end
for _, job in ipairs(jobs) do if job.id == head then wake(job.rules.queue) end end
index_tags()
count('submitted', created)
return answers
