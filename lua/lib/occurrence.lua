-- lib/occurrence: a schedule's occurrence, and the job that it becomes. It stands on base.lua, queue.lua and lifecycle.lua.
-- luacheck: push ignore 211
local OTHERS = 99                           -- ids that an occurrence's job may have besides its own, where others took that
local OPEN = {scheduled = true, queued = true, running = true}

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

-- The id of an occurrence's job, and whether that is there. A job that somebody else has given this id is none: then it is the next one.
local function occurrence_job(one, occurrence)
  for i = 0, OTHERS do
    local id = (string.match(base, '(%d+)}$') or '0') .. '-' .. one.name .. (i > 0 and '.' .. i or '') .. ':' .. occurrence
    if call('EXISTS', key('job:', id)) == 0 then return id, false end
    local spec = peek('HGET', key('job:', id), 'spec')
    local rules = type(spec) == 'string' and read_header(spec)
    if rules and rules.schedule == one.name and rules.at == occurrence then return id, true end
  end
end

-- The job of a schedule's occurrence, queued; why not, if there is no room for it.
local function submit_occurrence(one, occurrence)
  local id, is_there = occurrence_job(one, occurrence)
  local queue = look_at(one.queue)
  if not id then return 'INVALID jobs of others have the ids of occurrence ' .. occurrence end
  if not is_there then
    local no_room = full(queue, #one.payload)
    if no_room then return no_room end
    local more = one.rules == '' and '' or ' ' .. one.rules
    local header = one.queue .. ' ' .. one.task .. ' ' .. stamp .. ' at=' .. occurrence .. ' schedule=' .. one.name .. more
    local job = {id = id, hash = key('job:', id), rules = read_header(header)}
    if not queue.settings then call('HSET', key('queues'), one.queue, '') queue.settings = '' end
    backlog(one.queue, 1, #one.payload)
    place(job, 'queued', rank(job.rules.priority, next_seq(1)), 'fired', as_spec(header, one.payload))
    loaded[id], one.new = job, one.new + 1
  end
  one.last, one.fired = id, one.fired + 1
end
-- luacheck: pop
