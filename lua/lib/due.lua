-- lib/due: expired leases, due jobs, and which worker looks next. It needs base, queue, steps and lifecycle.
-- luacheck: push ignore 211
local buried = {}                           -- "id attempt queue task code" of jobs that an expired lease made dead
-- Why a lease ended: its worker sent a heartbeat after the attempt's timeout, so it was alive, or it did not.
local function expiry(job)
  local limit = tonumber(job.rules.timeout)
  local heard = limit and whole_number(peek('HGET', job.hash, 'heartbeat_at'))
  if not heard or heard - job.claimed_at < limit then return 'lease_expired' end
  return 'timed_out', 'ran longer than ' .. limit / 1000 .. ' s; its worker sent heartbeats and no outcome'
end

-- ms until a job that waits behind a running one is looked at again, if the end of that one does not cause it
local BEHIND = 60000
-- Maintenance, at most `limit` moves: jobs with an expired lease go back (the first time in a row to their
-- old place, later after a backoff), due jobs are queued. Returns how many of each.
local function maintain(limit, by)
  local lost = overdue('running', limit)
  local due = overdue('scheduled', limit - #lost)
  if #lost + #due == 0 then return 0, 0 end
  for _, id in ipairs(lost) do load_movable(id) end
  local ended = {}                          -- member → the job, or the workflow, whose edges are due
  for _, id in ipairs(due) do
    local upstream = string.match(id, '^>(.+)$')
    ended[id] = upstream and edges().look_again(upstream)
    local job = ended[id] or load_movable(id)
    if job.rules then load(job.rules.after) end
    if job.rules and job.rules.on_failure then edges().read(job) end
  end
  begin()
  call('HSET', base, 'maintenance', stamp .. ' ' .. by)
  local missing = 0                         -- jobs that do not exist: the numbers of their queues stay too high
  for _, id in ipairs(lost) do
    local job = load(id)
    if job.state == 'running' then
      local code, message = expiry(job)
      if lose_lease(job, 'reap', code, message) == 'dead' then
        buried[#buried + 1] = table.concat({id, job.attempt, job.rules.queue, job.rules.task, code}, ' ')
      end
    else
      call('ZREM', key('running'), id)
      if not job.state then missing = missing + 1 end
    end
  end
  for _, id in ipairs(due) do
    local from = ended[id]
    local job = from or load(id)
    if from then
      edges().go_on(from, place)
    elseif job.state == 'scheduled' and job.needs then
      edges().give_up(job, place)
    elseif job.state == 'scheduled' and load(job.rules.after).state == 'running' then
      call('ZADD', key('scheduled'), now + BEHIND, id)
    else
      call('ZREM', key('scheduled'), id)
      if not job.state then missing = missing + 1 end
      if job.state == 'scheduled' then place(job, 'queued', due_rank(job), 'due') end
    end
  end
  sum_up()
  count('expired', #lost)
  count('missing', missing)
  return #lost, #due
end

-- The next moment at which something falls due (a job, an occurrence of a schedule, the end of a lease) is
-- given to one worker at a time, as an alarm; the others look again after `cap` ms. `alarm` is the present
-- one. The end of a worker's own lease is not given to it: if it dies, the end would be noticed late. Returns the
-- ms that `worker` may wait, and 1 if an occurrence is due already: the caller fires it at once.
local function appointment(worker, cap, alarm)
  local due = (sizes.scheduled > 0 or first_due) and call('ZRANGE', key('scheduled'), 0, 0, 'WITHSCORES')[2]
    or nil
  -- jobs that this very call has taken are not in `sizes`: their leases are the worker's own
  local id, ends = unpack(sizes.running > 0 and call('ZRANGE', key('running'), 0, 0, 'WITHSCORES') or {})
  if ends and tonumber(ends) < now + cap and peek('HGET', key('job:', id), 'worker') == worker then
    ends = nil
  end
  local occurrence = peek('ZRANGE', key('schedules'), 0, 0, 'WITHSCORES')[2]
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
