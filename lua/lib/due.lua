-- lib/due: what time decides. It stands on base.lua, queue.lua and lifecycle.lua.
-- luacheck: push ignore 211
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

-- The next moment that something falls due (a job, a schedule's occurrence, the end of a lease) is given to one worker at a time, as an
-- alarm; the others look again after `cap` ms. `alarm` is who has it now. The end of a lease is nobody's appointment who holds
-- that lease: it would die with its keeper. Answers the ms that `worker` may wait, and 1 where an occurrence has come already: that is
-- for the caller to see to, at once.
local function appointment(worker, cap, alarm)
  local due = (sizes.scheduled > 0 or first_due) and call('ZRANGE', key('scheduled'), 0, 0, 'WITHSCORES')[2] or nil
  local id, ends = unpack(sizes.running > 0 and call('ZRANGE', key('running'), 0, 0, 'WITHSCORES') or {})  -- else they are its own
  if ends and tonumber(ends) < now + cap and peek('HGET', key('job:', id), 'worker') == worker then ends = nil end
  local occurrence = peek('ZCARD', key('schedules')) ~= 0 and peek('ZRANGE', key('schedules'), 0, 0, 'WITHSCORES')[2]
  local come = occurrence and tonumber(occurrence) <= now
  local moment = math.min(tonumber(due or math.huge), tonumber(ends or math.huge), not come and tonumber(occurrence) or math.huge)
  local at, owner = string.match(alarm or '', '^(%d+) (.+)$')
  if moment >= now + cap or (at and moment >= tonumber(at) and owner ~= worker) then return cap, come and 1 or 0 end
  local wait = math.max(0, math.ceil(moment - now))
  begin()
  call('SET', key('alarm'), string.format('%.0f ', moment) .. worker, 'PX', wait + 50)
  return wait, come and 1 or 0
end
-- luacheck: pop
