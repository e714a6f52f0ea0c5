-- fire: submit the jobs of due occurrences, and move each schedule on. Per occurrence one caller succeeds.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/occurrence.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  by           the caller's name
-- ARGV  name revision occurrence occurrences missed next due …   the schedules, in sevens: the first three as
--                    pick returned them; the occurrences that get a job (ms, from that one on, oldest first,
--                    separated by blanks, at most 100 in a call); how many are left out; the occurrence after
--                    them ("" for none), and when that one is due (ms)
-- REPLY array        one per schedule: "fired <n>" (jobs that exist now), "skipped <n>" (n jobs; overlap left
--                    out others); if an occurrence waits, after n jobs: "held <n>" (overlap), "later <n>" (a
--                    call stores at most 1 MiB of payloads), "QUEUE_FULL …; fired <n>"; "INVALID …",
--                    "CHANGED" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local AGAIN = 5000                          -- ms until a full queue is tried again
-- ms until a held occurrence is tried again, if the end of the job before does not cause it
local LOOK = 60000
local OCCURRENCES = 100                     -- in one call
local BYTES = 1048576                       -- bytes of payloads in one call
local RUNS = 10                             -- jobs of past occurrences that a schedule names
local OWN_WORDS = {held = true, later = true}
local by, total, bytes = ARGV[1], 0, 0
local refused_because = refused((#ARGV - 1) / 7, 50)
if refused_because then return refused_because end
for i = 2, #ARGV, 7 do
  for _ in string.gmatch(ARGV[i + 3], '%S+') do total = total + 1 end
end
if not is_name(by) then return refusal('INVALID', 'by: use 1 to 128 of ' .. NAME) end
if total > OCCURRENCES then
  return refusal('INVALID', total .. ' occurrences: use at most ' .. OCCURRENCES .. ' in a call')
end
call('ZCARD', key('schedules'))

local schedules, seen = {}, {}
for i = 2, #ARGV, 7 do                      -- read everything before the first write
  local name, revision, occurrence, occurrences, missed, next_occurrence, due = unpack(ARGV, i, i + 6)
  local last = (ms(occurrence) or 0) - 1
  local v = peek('HMGET', key('schedule:' .. name), 'revision', 'occurrence', 'queue', 'task', 'rules',
    'overlap', 'last_id', 'answer', 'paused', 'runs')
  local one = {name = name, queue = v[3], task = v[4], rules = v[5] or '', overlap = v[6], last = v[7],
    runs = v[10] or '', fired = 0, new = 0, skipped = 0, occurrences = {}, missed = ms(missed),
    asked = table.concat({by, revision, occurrence, ''}, ' '), occurrence = next_occurrence,
    due = next_occurrence == '' and NEVER or due}
  for moment in string.gmatch(occurrences, '%S+') do
    local at = ms(moment)
    if not at or at > now or at <= last then
      one.answer = 'INVALID occurrence ' .. string.sub(moment, 1, 80)
    end
    one.occurrences[#one.occurrences + 1], last = moment, at or last
  end
  local onward = ms(occurrence) and ms(one.due) and (
    next_occurrence == '' or (ms(next_occurrence) or 0) > math.max(last, occurrence))
  if not one.missed or not onward then
    one.answer = 'INVALID missed is a count, next and due are ms, and next must be later than the occurrences'
  end
  if v[1] ~= revision or v[2] ~= occurrence or v[9] == '1' then  -- a repeated call gets its first answer
    one.answer = v[8] and string.sub(v[8], 1, #one.asked) == one.asked and string.sub(v[8], #one.asked + 1) or 'CHANGED'
  elseif seen[name] then
    one.answer = 'CHANGED'
  end
  if not (v[1] and v[3] and v[4]) then one.answer = 'NOT_FOUND' end
  if not one.answer then
    one.answer, seen[name] = inconsistent(one), true
    load(one.last)
  end
  schedules[#schedules + 1] = one
end

-- Put the last job's id before the others, once.
local function remember(one)
  local ids = {one.last}
  for id in string.gmatch(one.runs, '%S+') do
    if #ids < RUNS and id ~= one.last then ids[#ids + 1] = id end
  end
  one.runs = table.concat(ids, ' ')
end

-- Submit the jobs of one schedule's occurrences, up to the first that has to wait. Returns the answer.
local function fire(one)
  for _, occurrence in ipairs(one.occurrences) do
    local busy, why, wait = one.overlap ~= 'allow' and one.last and OPEN[load(one.last).state], nil, LOOK
    if busy and one.overlap == 'skip' then
      one.skipped = one.skipped + 1
    elseif busy then
      why, one.held = 'held', one.last
    elseif bytes > 0 and bytes + call('HSTRLEN', key('schedule:' .. one.name), 'payload') > BYTES then
      why, wait = 'later', 0
    else
      one.payload = one.payload or call('HGET', key('schedule:' .. one.name), 'payload') or ''
      bytes = bytes + #one.payload
      why, wait = submit_occurrence(one, occurrence), AGAIN
      one.held = why
      if not why then remember(one) end
    end
    if why then                             -- this occurrence remains the next one
      one.occurrence, one.due = occurrence, string.format('%.0f', now + wait)
      local tail = string.find(why, '^QUEUE_FULL') and '; fired ' .. one.fired
      return why .. (tail or OWN_WORDS[why] and ' ' .. one.fired or '')
    end
  end
  return (one.skipped > 0 and 'skipped ' or 'fired ') .. one.fired
end

local answers, new, no_room = {}, 0, 0
for _, one in ipairs(schedules) do
  if not one.answer then
    local hash = key('schedule:' .. one.name)
    one.answer = fire(one)
    call('HSET', hash, 'occurrence', one.occurrence, 'held', one.held or '',
      'answer', one.asked .. one.answer)
    if one.fired > 0 then
      call('HSET', hash, 'last_id', one.last, 'runs', one.runs, 'fired_at', stamp, 'fired_by', by)
    end
    for _, what in ipairs({'fired', 'skipped', 'missed'}) do
      if one[what] > 0 then add(hash, what, one[what]) end
    end
    call('ZADD', key('schedules'), one.occurrence == '' and NEVER or one.due, one.name)
    new = new + one.new
    if string.find(one.answer, '^QUEUE_FULL') then no_room = no_room + 1 end
  end
  answers[#answers + 1] = one.answer
end
index_tags()
count('submitted', new)
count('queue_full', no_room)
return answers
