-- lib/links: check the edges of new jobs, and store them. It needs base, intake and edges.
-- luacheck: push ignore 211
local EDGES = 500                           -- in one call
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
    call('LLEN', key('downstream:', from))
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
  for _, name in ipairs({'upstream:' .. id, 'downstream:' .. id, 'downstream:/' .. workflow}) do call('LLEN', key(name)) end
  if linked[id] then return 'INVALID job ' .. id .. ' is given twice', true end
  if old.state and member and old.rules.workflow ~= member then return 'INVALID job ' .. id .. ' exists, and is not a member', true end
  if old.state then return 'exists ' .. id end
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

local function store_edge(from, to) call('RPUSH', key('downstream:', from), to) end
-- Store the new jobs with their edges.
local function store_linked(workflow)
  store_jobs()
  local members = {}
  for _, job in ipairs(new_jobs) do
    if job.needs > 0 then call('HSET', job.hash, 'needs', job.needs) end
    if #job.from > 0 then call('RPUSH', key('upstream:', job.id), unpack(job.from)) end
    for _, from in ipairs(job.from) do store_edge(from, job.id) end
    if job.opens then store_edge('/' .. workflow, job.id) end
    for _, to in ipairs(job.to) do
      to.needs = to.needs + 1
      call('HSET', to.hash, 'needs', to.needs)
      call('RPUSH', key('upstream:', to.id), job.id)
      store_edge(job.id, to.id)
    end
    members[#members + 1], members[#members + 2] = 0, job.id
  end
  for id in pairs(grown) do call('HSET', key('job:', id), 'watched', '2') end
  if workflow ~= '' then call('ZADD', key('members:', workflow), unpack(members)) end
end
-- luacheck: pop
