-- submit: store jobs, queued or scheduled; a known id or key answers with the job that is already there.
--
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id queue task rules payload …   the jobs, in fives; rules are words, "" when all is default:
--                    priority=-100…100  delay=ms or at=ms since 1970  key=K [window=ms]  tries=N
--                    timeout=ms|none  retention=ms  backoff=first ms:factor:cap ms  trace=traceparent  digest=hexadecimal
-- REPLY array        one per job: "created", "exists <id>", "QUEUE_FULL …" or "INVALID …"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local SPEC_MAX = 1024                       -- a longer payload is a field of its own, read by claim alone
local D, X = string.rep('%d?', 13), string.rep('%x', 16)  -- more digits, 14 in all reach the year 5138; those of a short digest
local NUMBER, COUNT = '^%d' .. D .. '$', '^[1-9]' .. D .. '$'
local SHAPES = {priority = '^%-?%d%d?%d?$', delay = NUMBER, at = NUMBER, window = COUNT, tries = COUNT, timeout = NUMBER,
  retention = NUMBER, backoff = '^%d' .. D .. ':%d+%.?%d*:%d' .. D .. '$', key = '^[!-~]+$', trace = '^%x[%x-]+$',
  digest = '^' .. X .. '%x*$'}

local refused_because = refused(#ARGV / 5, 200)
if refused_because then return refused_because end
local seen, jobs, answers, turned_away = {}, {}, {}, 0   -- ids and locks taken by this very call; what to store; what to say

-- Look at one job before anything is written: a word for the caller, and the job if it is new.
local function examine(id, queue, task, rules, payload)
  if #id > 64 or not (is_name(id) and is_name(queue) and is_name(task)) then
    return 'INVALID names are 1 to 128 (ids: to 64) of A-Z a-z 0-9 _ . : -'
  end
  local given = {}
  for word in string.gmatch(rules == '' and rules or rules .. ' ', '([^ ]*) ') do
    local name, value = string.match(word, '^(%w+)=(.+)$')
    local shape = name and not given[name] and #value <= 128 and (SHAPES[name] or '^$')
    local fits = shape and (string.find(value, shape) or word == 'timeout=none')
    if not fits or name == 'priority' and math.abs(value) > 100 then return 'INVALID rule ' .. string.sub(word, 1, 80) end
    given[name] = true
  end
  if seen[id] or call('EXISTS', key('job:' .. id)) == 1 then return 'exists ' .. id end
  local job = read_header(queue .. ' ' .. task .. ' ' .. stamp .. (rules == '' and '' or ' ' .. rules))
  if job.key then
    job.lock = key('key:' .. queue .. '|' .. job.key)
    local holder = seen[job.lock] or call('GET', job.lock)
    local stands = holder and (seen[holder] or call('EXISTS', key('job:' .. holder)) == 1 or call('PTTL', job.lock) > 0)
    if stands then return 'exists ' .. holder end
  end
  job.place = look_at(queue)
  local no_room = full(job.place, #payload)
  if no_room then turned_away = turned_away + 1 return no_room end
  job.place.jobs, job.place.bytes = job.place.jobs + 1, job.place.bytes + #payload
  job.id, job.payload, job.due = id, payload, tonumber(job.at or job.delay and now + job.delay or 0)
  seen[id], seen[job.lock or id], jobs[#jobs + 1] = id, id, job
  return 'created'
end
for i = 1, #ARGV, 5 do answers[#answers + 1] = examine(unpack(ARGV, i, i + 4)) end
if #jobs == 0 and turned_away > 0 then begin() end      -- counted on a full server, too
count('queue_full', turned_away)
if #jobs == 0 then return answers end

local places, moved, wanted = {}, {}, {}    -- structure → its new members, state → ids, queue → has it work now?
local seq = next_seq(#jobs) - #jobs
for i, job in ipairs(jobs) do
  local state = job.due > now and 'scheduled' or 'queued'
  local structure = state == 'queued' and 'queue:' .. job.queue or state
  local spec = #job.payload <= SPEC_MAX and job.header .. '\n' .. job.payload or job.header
  call('HSET', key('job:' .. job.id), 'state', state, 'spec', spec)
  if spec == job.header then call('HSET', key('job:' .. job.id), 'payload', job.payload) end
  if job.lock then call('SET', job.lock, job.id, unpack(job.window and {'PX', job.window} or {})) end
  local members, ids = places[structure] or {}, moved[state] or {}
  ids[#ids + 1], moved[state] = job.id, ids
  places[structure], wanted[job.queue] = members, wanted[job.queue] or state == 'queued'
  members[#members + 1], members[#members + 2] = state == 'queued' and rank(job.priority, seq + i) or job.due, job.id
end
for structure, members in pairs(places) do call('ZADD', key(structure), unpack(members)) end
for state, ids in pairs(moved) do event(ids, state, 'submitted') end
local head = places.scheduled and call('ZRANGE', key('scheduled'), 0, 0)[1]
for _, job in ipairs(jobs) do if job.id == head then wanted[job.queue] = true end end
for name, now_or_soon in pairs(wanted) do
  local queue = look_at(name)
  if not queue.settings then call('HSET', key('queues'), name, '') end
  backlog(name, queue.jobs, queue.bytes)
  if now_or_soon then wake(name) end
end
count('submitted', #jobs)
return answers
