-- lib/links: check the edges of new jobs, and store them; workflows. It needs base, intake and edges.
-- luacheck: push ignore 211
local EDGES = 500                           -- in one call
local SEAL_WITHIN = 3600000                 -- ms in which a workflow must be sealed
local linked = {}                           -- id → a new job of this call
local grown = {}                            -- ids of jobs that have got a downstream in this call
local edge_count = 0
local function edge_words(from, to) return 'edge ' .. from .. ' to ' .. to .. ': ' end

-- The upstreams of a new job, and whether one of them waits; or nil and the refusal.
local function upstreams_of(id, words)
  local found, known, waits = {}, {}, false
  for from in string.gmatch(words, '%S+') do
    local job = linked[from] or edges().read(load(from))
    if not linked[from] and not edges().LIVES[job.state or ''] then
      return nil, (job.state and 'WRONG_STATE ' or 'NOT_FOUND ') .. edge_words(from, id) .. from
        .. (job.state and ' is ' .. job.state or ' is neither above it nor stored')
    end
    if not linked[from] then call('LLEN', key('downstream:', from)) end
    waits = waits or (job.needs or 0) > 0
    if not known[from] then found[#found + 1], known[from], grown[from] = from, true, true end
  end
  edge_count = edge_count + #found
  return found, waits
end

-- The waiting jobs that are to wait for a new job, too; or nil and the refusal. No cycle can close if the new job waits for
-- none that waits, or the other has no downstream.
local function downstreams_of(id, words, waits)
  local found, known = {}, {}
  for to in string.gmatch(words, '%S+') do
    local job = edges().read(load(to))
    if job.state ~= 'scheduled' or not job.needs then
      return nil, (job.state and 'WRONG_STATE ' or 'NOT_FOUND ') .. edge_words(id, to) .. to
        .. (job.state and ' does not wait for jobs' or ' is not stored')
    end
    if waits and (grown[to] or call('EXISTS', key('downstream:', to)) == 1) then
      return nil, 'INVALID ' .. edge_words(id, to) .. id .. ' waits for jobs that wait, and ' .. to
        .. ' has a downstream, so that it could close a cycle'
    end
    call('LLEN', key('upstream:', to))
    if not known[to] then found[#found + 1], known[to] = job, true end
  end
  edge_count = edge_count + #found
  return found
end

-- Check one job before anything is written. Returns its answer, and whether the call is refused.
local function examine_linked(workflow, is_open, id, queue, task, rules, payload, after, into)
  local old, member = load(id), workflow ~= '' and workflow or nil
  if linked[id] then return 'INVALID job ' .. id .. ' is given twice', true end
  if old.state and member and old.rules.workflow ~= member then return 'INVALID job ' .. id .. ' exists, and is not a member', true end
  if old.state then return 'exists ' .. id end
  if call('LLEN', key('upstream:', id)) + call('LLEN', key('downstream:', id)) + call('LLEN', key('broken:', id)) > 0 then
    return 'WRONG_STATE job ' .. id .. ' was deleted, and edges of it are left: use another id', true
  end
  local from, waits = upstreams_of(id, after)
  if not from then return waits, true end
  local to, wrong = downstreams_of(id, into, waits)
  if not to then return wrong, true end
  local given = ' ' .. rules .. ' '
  local policy = string.match(given, ' on_failure=(%S+)')
  if policy and not string.find(' cancel run hold ', ' ' .. policy .. ' ', 1, true) then
    return 'INVALID rule on_failure=' .. string.sub(policy, 1, 40) .. ': use cancel, run or hold', true
  end
  if string.find(given, ' key=', 1, true) or string.find(given, ' workflow=', 1, true) then
    return 'INVALID rules of job ' .. id .. ': its id is unique, so leave out key; workflow is an argument of its own', true
  end
  local follows = false                     -- does it wait for the workflow as one of its upstreams does?
  for _, name in ipairs(from) do
    follows = follows or member and (linked[name] or load(name)).rules.workflow == member
  end
  local needed = #from + (is_open and not follows and 1 or 0)
  if needed > 0 and not policy then rules = rules .. ' on_failure=cancel' end
  if member then rules = rules .. ' workflow=' .. member end
  local answer = examine(id, queue, task, string.gsub(rules, '^ ', ''), payload)
  if answer ~= 'created' then return string.gsub(answer, ' ', ' job ' .. id .. ': ', 1), true end
  local job = new_jobs[#new_jobs]
  job.from, job.to, job.needs, job.hash, job.opens = from, to, needed, key('job:', id), needed > #from
  if #to > 0 then grown[id] = true end
  if needed > 0 then job.due = edges().wait_until(job) end
  linked[id] = job
  return answer
end

-- Store the new jobs with their edges.
local function store_linked(workflow)
  store_jobs()
  local members = {}
  for _, job in ipairs(new_jobs) do
    if job.needs > 0 then call('HSET', job.hash, 'needs', digits(job.needs)) end
    if #job.from > 0 then call('RPUSH', key('upstream:', job.id), unpack(job.from)) end
    for _, from in ipairs(job.from) do call('RPUSH', key('downstream:', from), job.id) end
    if job.opens then call('RPUSH', key('downstream:/', workflow), job.id) end
    for _, to in ipairs(job.to) do
      to.needs = to.needs + 1
      call('HSET', to.hash, 'needs', to.needs)
      call('RPUSH', key('upstream:', to.id), job.id)
      call('RPUSH', key('downstream:', job.id), to.id)
    end
    members[#members + 1], members[#members + 2] = 0, job.id
  end
  for id in pairs(grown) do call('HSET', key('job:', id), 'watched', '2') end
  if workflow ~= '' then call('ZADD', key('members:', workflow), unpack(members)) end
end

local old_flow = {}                         -- the workflow of this call as it was: its state, and itself as an upstream
-- Check the jobs in ARGV from `first` on, and whether the workflow may get them. Returns their answers, or nil and the refusal.
local function examine_workflow(workflow, how, first)
  local is_flow, members = workflow ~= '', key('members:', workflow)
  old_flow.state = is_flow and call('HGET', key('workflow:', workflow), 'state')
  call('ZCARD', members)
  if not old_flow.state and how == 'cancel' then return nil, 'NOT_FOUND no workflow ' .. workflow end
  old_flow.itself = edges().upstream('/' .. workflow)
  call('LLEN', key('downstream:/', workflow))
  if old_flow.state == 'open' and how ~= 'open' then edges().look(old_flow.itself) end
  local answers = {}
  for i = first, #ARGV, 7 do
    local answer, is_refused = examine_linked(workflow, how == 'open', unpack(ARGV, i, i + 6))
    if is_refused then return nil, answer end
    answers[#answers + 1] = answer
  end
  if edge_count > EDGES then return nil, 'INVALID edges: a call takes up to ' .. EDGES .. ', not ' .. edge_count end
  local late = old_flow.state == 'cancelled' and (how == 'seal' or #new_jobs > 0) and 'was cancelled, or not sealed within an hour'
    or old_flow.state == 'sealed' and (how == 'cancel' or how == 'open' and #new_jobs > 0) and 'is sealed'
    or old_flow.state == 'sealed' and #new_jobs > 0 and call('ZCOUNT', members, 0, 0) == 0 and 'has ended'
  if late then return nil, 'WRONG_STATE workflow ' .. workflow .. ' ' .. late end
  return answers
end

-- Store these jobs, and the state of the workflow.
local function store_workflow(workflow, how, place)
  local is_flow, about = workflow ~= '', key('workflow:', workflow)
  if is_flow and not old_flow.state then
    call('HSET', about, 'created_at', stamp, 'state', how == 'open' and how or 'sealed')
    if how == 'open' then mark_unsettled(old_flow.itself.id, digits(now + SEAL_WITHIN)) end
  end
  if #new_jobs > 0 then store_linked(workflow) end
  if old_flow.state == 'open' and how ~= 'open' then
    old_flow.itself.state = how == 'seal' and 'completed' or 'cancelled'
    call('HSET', about, 'state', how == 'seal' and 'sealed' or 'cancelled')
    edges().settle(old_flow.itself, place)
  end
  if is_flow then membership().check_end(workflow) end
end
-- luacheck: pop
