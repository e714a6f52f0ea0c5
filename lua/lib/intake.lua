-- lib/intake: check new jobs, and store those that may be stored. It needs base, rules, queue, flow, tags and conflict.
-- luacheck: push ignore 211
local QUEUES = 100000                       -- queues that are known, unless configured
local in_call = {}                          -- ids and locks that this call has taken
local new_jobs = {}                         -- jobs to store
local new_queues = 0                        -- new queues of this call
local turned_away = 0                       -- jobs that their queue's limits refuse

-- Check one job before anything is written. Returns the answer; a new job is added to `new_jobs`.
local function examine(id, queue, task, rules, payload)
  if #id > 64 or not (is_name(id) and is_name(queue) and is_name(task)) then
    return 'INVALID names must be 1 to 128 (ids: to 64) of ' .. NAME
  end
  local unfit, advice = invalid_rule(rules)
  if unfit then return 'INVALID rule ' .. unfit .. advice end
  if in_call[id] or call('EXISTS', key('job:', id)) == 1 then return 'exists ' .. id end
  local header = read_header(queue .. ' ' .. task .. ' ' .. stamp .. (rules == '' and '' or ' ' .. rules))
  local due = tonumber(header.at or header.delay and now + header.delay or 0)
  local job = {id = id, rules = header, payload = payload, due = due}
  local grows, old, ruled, wrong, lock = #payload
  if rules ~= '' then ruled, wrong = conflict_rule(header) end
  if wrong then return wrong end
  if header.key then
    lock = key('key:' .. queue .. '|', header.key)
    job.lock = lock
    local holder = in_call[job.lock] or call('GET', job.lock)
    local stands = holder and (in_call[holder] or call('EXISTS', key('job:', holder)) == 1 or call('PTTL', job.lock) > 0)
    if stands and not ruled then return 'exists ' .. holder end
    if ruled then
      local answer = meet(job, holder)
      if answer then return answer end
      id, old, grows = job.id, job.old, job.grows or grows
    end
  end
  if header.known then return 'NOT_FOUND' end
  local where = get_queue(queue)
  local turns = header.group or where.by_turns
  if turns then                             -- a field of nil would make the table grow, too
    job.by_turns = turns
    check_flow(job)
  end
  if old then check_flow(old) end
  local no_room = where.settings and full(where, grows, old)
  if not no_room and not where.settings and where.jobs == 0 and not old then
    local most = tonumber(setting(call('HGET', key('queues'), '*'), 'queues') or QUEUES)
    if call('HLEN', key('queues')) + new_queues < most then
      new_queues = new_queues + 1
    else
      no_room = 'QUEUE_FULL queue ' .. queue .. ' is new, and there are ' .. most .. ' queues, the most'
    end
  end
  if no_room then
    turned_away = turned_away + 1
    return no_room
  end
  where.jobs, where.bytes = old and where.jobs or where.jobs + 1, where.bytes + grows
  in_call[id], in_call[lock or id] = id, id
  if lock then add_pending(job, new_jobs) else new_jobs[#new_jobs + 1] = job end
  return old and 'replaced ' .. id or 'created'
end

-- Store the jobs.
local function store_jobs()
  local places = {}                         -- structure → its new members
  local moved = {}                          -- state → ids
  local wanted = {}                         -- queue → has it work now?
  local grouped = {}                        -- queue with groups or limits → the groups of new jobs
  local seq = next_seq(#new_jobs) - #new_jobs
  local function add_to_group(job, queue, group, score)
    if group then
      local members, name = places['grouped:' .. queue] or {}, 'grouped:' .. queue
      places[name], members[#members + 1], members[#members + 2] = members, score, job.id
    end
    grouped[queue] = grouped[queue] or {}
    grouped[queue][group or ''] = true
  end
  for i, job in ipairs(new_jobs) do
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
  for _, job in ipairs(new_jobs) do if job.id == head then wake(job.rules.queue) end end
  index_tags()
  count('submitted', created)
end
-- luacheck: pop
