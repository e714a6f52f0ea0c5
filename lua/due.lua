-- due: what time decides. It follows lib.lua, queue.lua and life.lua in front of each script.
-- luacheck: push ignore 211
local OTHERS = 99                           -- ids that a slot's job may have besides its own, where others took that
local NEVER = '99999999999999'              -- ms, the score of a schedule that has no slot to come

-- The ids of a structure whose moment has come, at most `limit`.
local function overdue(structure, limit)
  return sizes[structure] > 0 and call('ZRANGE', key(structure), '-inf', stamp, 'BYSCORE', 'LIMIT', 0, limit) or {}
end

-- What time has decided, at most `limit` moves: leases that ended go back (the first in a row to its old place,
-- later ones after a backoff), jobs that fell due are queued. Answers how many of each.
local function upkeep(limit, by)
  local lost = overdue('running', limit)
  local due = overdue('scheduled', limit - #lost)
  if #lost + #due == 0 then return 0, 0 end
  for _, ids in ipairs({lost, due}) do for _, id in ipairs(ids) do load_movable(id) end end
  begin()
  call('HSET', base, 'upkeep', stamp .. ' ' .. by)
  for _, id in ipairs(lost) do
    local job = load(id)
    if job.state == 'running' then lose(job, 'reap', 'lease_expired') else call('ZREM', key('running'), id) end
  end
  for _, id in ipairs(due) do
    local job = load(id)
    call('ZREM', key('scheduled'), id)
    if job.state == 'scheduled' then place(job, 'queued', rank(job.rules.priority, next_seq(1)), 'due') end
  end
  sum_up()
  count('expired', #lost)
  return #lost, #due
end

-- Why a schedule cannot be fired that somebody has spoiled, or its queue; nil when it can. It raises nothing: others go on.
local function spoiled(one)
  if not (is_name(one.queue) and is_name(one.task)) then return 'INVALID its queue or its task has no name' end
  if unfit_rule(one.rules) then return 'INVALID its rules are none' end
  for command, structure in pairs({ZCARD = 'queue:', LLEN = 'wake:'}) do
    local length = peek(command, key(structure .. one.queue))
    if type(length) ~= 'number' then return 'INVALID ' .. structure .. one.queue .. ' is a key of a wrong type' end
  end
  look_at(one.queue)
end

-- The id of a slot's job, and whether that is there. A job that somebody else has given this id is none: then it is the next one.
local function slot_job(one, slot)
  for i = 0, OTHERS do
    local id = (string.match(base, '(%d+)}$') or '0') .. '-' .. one.name .. (i > 0 and '.' .. i or '') .. ':' .. slot
    if call('EXISTS', key('job:', id)) == 0 then return id, false end
    local spec = peek('HGET', key('job:', id), 'spec')
    local rules = type(spec) == 'string' and read_header(spec)
    if rules and rules.schedule == one.name and rules.at == slot then return id, true end
  end
end

-- The job of a schedule's slot, queued; why not, if there is no room for it.
local function submit_slot(one, slot)
  local id, is_there = slot_job(one, slot)
  local queue = look_at(one.queue)
  if not id then return 'INVALID jobs of others have the ids of slot ' .. slot end
  if not is_there then
    local no_room = full(queue, #one.payload)
    if no_room then return no_room end
    local more = one.rules == '' and '' or ' ' .. one.rules
    local header = one.queue .. ' ' .. one.task .. ' ' .. stamp .. ' at=' .. slot .. ' schedule=' .. one.name .. more
    local job = {id = id, hash = key('job:', id), rules = read_header(header)}
    if not queue.settings then call('HSET', key('queues'), one.queue, '') queue.settings = '' end
    backlog(one.queue, 1, #one.payload)
    place(job, 'queued', rank(job.rules.priority, next_seq(1)), 'fired', as_spec(header, one.payload))
    loaded[id], one.new = job, one.new + 1
  end
  one.last, one.fired = id, one.fired + 1
end

-- Forget at most `limit` finished jobs that are past their time, or too many. Answers how many.
local function forget(limit)
  local gone, keep = 0, tonumber(setting(partition, 'completed') or KEEP_COMPLETED)
  for _, state in ipairs({'completed', 'dead', 'cancelled'}) do
    local old, extra = overdue(state, limit - gone), state == 'completed' and sizes.completed - keep or 0
    if #old == 0 and math.min(extra, limit) > 0 then old = call('ZRANGE', key(state), 0, math.min(extra, limit - gone) - 1) end
    for _, id in ipairs(old) do call('DEL', key('job:', id)) end
    if #old > 0 then call('ZREM', key(state), unpack(old)) end
    gone = gone + #old
  end
  return gone
end

-- The next moment that something falls due (a job, a schedule's slot, the end of a lease) is given to one worker at a time, as an
-- alarm; the others look again after `cap` ms. `alarm` is who has it now. The end of a lease is nobody's appointment who holds
-- that lease: it would die with its keeper. Answers the ms that `worker` may wait, and 1 where a slot has come already: that is
-- for the caller to see to, at once.
local function appointment(worker, cap, alarm)
  local due = (sizes.scheduled > 0 or first_due) and call('ZRANGE', key('scheduled'), 0, 0, 'WITHSCORES')[2] or nil
  local id, ends = unpack(sizes.running > 0 and call('ZRANGE', key('running'), 0, 0, 'WITHSCORES') or {})  -- else they are its own
  if ends and tonumber(ends) < now + cap and peek('HGET', key('job:', id), 'worker') == worker then ends = nil end
  local slot = peek('ZCARD', key('schedules')) ~= 0 and peek('ZRANGE', key('schedules'), 0, 0, 'WITHSCORES')[2]
  local come = slot and tonumber(slot) <= now
  local moment = math.min(tonumber(due or math.huge), tonumber(ends or math.huge), not come and tonumber(slot) or math.huge)
  local at, owner = string.match(alarm or '', '^(%d+) (.+)$')
  if moment >= now + cap or (at and moment >= tonumber(at) and owner ~= worker) then return cap, come and 1 or 0 end
  local wait = math.max(0, math.ceil(moment - now))
  begin()
  call('SET', key('alarm'), string.format('%.0f ', moment) .. worker, 'PX', wait + 50)
  return wait, come and 1 or 0
end
-- luacheck: pop
