-- fire: submit the jobs of slots that have come, and move each schedule on. Of all who fire the same slot, one does.
--
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  by           the caller's name
-- ARGV  name revision slot slots missed next due …   the schedules, in sevens: as pick gave the first three; the slots that get a job
--                    (ms, oldest first, with blanks between, at most 100 in a call); how many slots are left out; the slot
--                    after them ("" for none), and when that is to be fired (ms)
-- REPLY array        one per schedule: "fired <n>" (jobs that are there now), "skipped <n>" (fired n, others were left out: overlap),
--                    "held" (overlap: the first slot without a job waits), "QUEUE_FULL …", "INVALID …", "CHANGED" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local AGAIN, LOOK, SLOTS = 5000, 60000, 100 -- ms until a full queue is tried again, and until a held slot is looked at anyway
local by, total = ARGV[1], 0
local refused_because = refused((#ARGV - 1) / 7, 50)
if refused_because then return refused_because end
for i = 5, #ARGV, 7 do for _ in string.gmatch(ARGV[i], '%S+') do total = total + 1 end end
if not is_name(by) or total > SLOTS then return refusal('INVALID', 'by is a name, and a call has at most ' .. SLOTS .. ' slots') end
call('ZCARD', key('schedules'))

local schedules = {}
for i = 2, #ARGV, 7 do                      -- look at all before anything is written
  local name, revision, slot, slots, missed, next_slot, due = unpack(ARGV, i, i + 6)
  local v = peek('HMGET', key('schedule:' .. name), 'revision', 'slot', 'queue', 'task', 'rules', 'overlap', 'payload', 'last_id', 'answer')
  local one = {name = name, queue = v[3], task = v[4], rules = v[5], overlap = v[6], payload = v[7], last = v[8], fired = 0, new = 0,
    skipped = 0, asked = revision .. ' ' .. slot .. ' ', slots = {}, missed = ms(missed), slot = next_slot,
    due = next_slot == '' and NEVER or due}
  for moment in string.gmatch(slots, '%S+') do one.slots[#one.slots + 1] = moment end
  for _, moment in ipairs(one.slots) do if not ms(moment) or tonumber(moment) > now then one.answer = 'INVALID slot ' .. moment end end
  if not one.missed or not ms(one.due) or next_slot ~= '' and not ms(next_slot) then one.answer = 'INVALID numbers are ms, or a count' end
  if v[1] ~= revision or v[2] ~= slot then  -- sent again, it is answered as before
    one.answer = v[9] and string.sub(v[9], 1, #one.asked) == one.asked and string.sub(v[9], #one.asked + 1) or 'CHANGED'
  end
  if not v[1] then one.answer = 'NOT_FOUND' end
  if not one.answer then look_at(one.queue) load(one.last) end
  schedules[#schedules + 1] = one
end

local OPEN = {scheduled = true, queued = true, running = true}
local function fire(one)
  for _, slot in ipairs(one.slots) do
    local busy, why = one.overlap ~= 'allow' and one.last and OPEN[load(one.last).state], nil
    if busy and one.overlap == 'skip' then
      one.skipped = one.skipped + 1
    else
      if busy then why = 'held' else why = submit_slot(one, slot) end
    end
    if why then                             -- this slot is the next one, still
      one.slot, one.due, one.held = slot, string.format('%.0f', now + (busy and LOOK or AGAIN)), busy and one.last or why
      return why
    end
  end
  return (one.skipped > 0 and 'skipped ' or 'fired ') .. one.fired
end

local answers, new, turned_away = {}, 0, 0
for _, one in ipairs(schedules) do
  if not one.answer then
    local hash = key('schedule:' .. one.name)
    one.answer = fire(one)
    call('HSET', hash, 'slot', one.slot, 'held', one.held or '', 'answer', one.asked .. one.answer)
    if one.fired > 0 then call('HSET', hash, 'last_id', one.last, 'fired_at', stamp, 'fired_by', by) end
    for _, what in ipairs({'fired', 'skipped', 'missed'}) do if one[what] > 0 then add(hash, what, one[what]) end end
    call('ZADD', key('schedules'), one.slot == '' and NEVER or one.due, one.name)
    new, turned_away = new + one.new, turned_away + (string.find(one.answer, '^QUEUE_FULL') and 1 or 0)
  end
  answers[#answers + 1] = one.answer
end
count('submitted', new)
count('queue_full', turned_away)
return answers
