-- lib/occurrence: the job of a schedule's occurrence. It needs base, queue, tags and lifecycle.
-- luacheck: push ignore 211
-- Other ids that an occurrence's job may have, if jobs of other origin took its own
local OTHERS = 99
local OPEN = {scheduled = true, queued = true, running = true}

-- Why a schedule with invalid stored values, or one whose queue has a key of a wrong type, cannot be fired;
-- nil if it can. It returns an answer and raises nothing: the other schedules of the call go on.
local function inconsistent(one)
  if not (is_name(one.queue) and is_name(one.task)) then
    return 'INVALID the stored name of its queue or task is not valid: put the schedule again'
  end
  if invalid_rule(one.rules) then return 'INVALID its stored rules are not valid: put the schedule again' end
  local group = string.match(' ' .. one.rules, ' group=(%S+)')
  local lists = {'queue:' .. one.queue, 'wake:' .. one.queue, group and 'grouped:' .. one.queue,
    group and 'waiting:' .. one.queue .. '|' .. group}
  for i, name in ipairs(lists) do
    if type(peek(i == 2 and 'LLEN' or 'ZCARD', key(name))) ~= 'number' then
      return 'INVALID ' .. name .. ' is a key of a wrong type'
    end
  end
  get_queue(one.queue)
end

-- The id of an occurrence's job, and whether the job exists. If a job of other origin has this id, the next
-- one is tried.
local function occurrence_job(one, occurrence)
  for i = 0, OTHERS do
    local id = (string.match(base, '(%d+)}$') or '0') .. '-' .. one.name .. (i > 0 and '.' .. i or '') .. ':'
      .. occurrence
    if call('EXISTS', key('job:', id)) == 0 then return id, false end
    local spec = peek('HGET', key('job:', id), 'spec')
    local rules = type(spec) == 'string' and read_header(spec)
    if rules and rules.schedule == one.name and rules.at == occurrence then return id, true end
  end
end

-- Queue the job of a schedule's occurrence. Returns the refusal if the queue is full or no id is free.
local function submit_occurrence(one, occurrence)
  local id, is_there = occurrence_job(one, occurrence)
  local queue = get_queue(one.queue)
  if not id then return 'INVALID other jobs have all ids of occurrence ' .. occurrence end
  if not is_there then
    local no_room = full(queue, #one.payload)
    if no_room then return no_room end
    local more = one.rules == '' and '' or ' ' .. one.rules
    local header = one.queue .. ' ' .. one.task .. ' ' .. stamp .. ' at=' .. occurrence .. ' schedule='
      .. one.name .. more
    local job = {id = id, hash = key('job:', id), rules = read_header(header)}
    if not queue.settings then
      call('HSET', key('queues'), one.queue, '')
      queue.settings = ''
    end
    backlog(one.queue, 1, #one.payload)
    place(job, 'queued', rank(job.rules.priority, next_seq(1)), 'fired', as_spec(header, one.payload))
    if job.rules.tags then note_tags(job) end
    loaded[id], one.new = job, one.new + 1
  end
  one.last, one.fired = id, one.fired + 1
end
-- luacheck: pop
