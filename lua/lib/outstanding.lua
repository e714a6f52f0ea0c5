-- lib/outstanding: check whether jobs, workflows and steps agree with what is outstanding. It needs base, queue,
-- steps, members and integrity.
-- luacheck: push ignore 211
local LISTS = 500                          -- upstreams of a job whose lists are read
local WIDEST = 5000                         -- jobs in such a list; where there are more, edges are not counted

-- The edges of a job, or of a workflow by "/" and its id: are some due, with a member of `scheduled`? An open workflow has one, too.
local function check_edges(id)
  local workflow = string.match(id, '^/(.+)$')
  local job = workflow and {} or load(id)
  local lives = job.watched == '2' and UNFINISHED[job.state]
  local is_open = workflow and peek('HGET', key('workflow:', workflow), 'state') == 'open'
  local left = {not lives and key('downstream:', id) or nil}
  if lives or job.watched == '2' and job.state == 'completed' then left[#left + 1] = key('broken:', id) end
  local due = not is_open and call('EXISTS', unpack(left)) > 0
  local stands = call('ZSCORE', key('scheduled'), '>' .. id)
  local counted = peek('SISMEMBER', key('unsettled'), id) == 1
  if due or is_open then
    local is_late = not stands or not valid_score(stands) or tonumber(stands) > now + 7200000
    if not is_late and counted then return end
    fix('unsettled')
    if only_looks then return end
    begin_once()
    return mark_unsettled(id, is_late and (due and stamp or digits(now + 3600000)) or stands)
  end
  if not stands and not counted then return end
  fix('settled')
  if only_looks then return end
  begin_once()
  unmark_unsettled(id)
end

-- How many edges of a job are not fulfilled, and how many of these are broken; nil if there are too many to look at.
local function count_edges(job)
  local upstreams, workflow = key('upstream:', job.id), job.rules.workflow
  local length = peek('LLEN', upstreams)
  if type(length) ~= 'number' or length > LISTS then return nil end
  local names, sums = call('LRANGE', upstreams, 0, -1), {['downstream:'] = 0, ['broken:'] = 0}
  if workflow then names[#names + 1] = '/' .. workflow end
  for kind in pairs(sums) do
    for _, name in ipairs(names) do
      local list = key(kind, name)
      local has = peek('LLEN', list)
      if type(has) ~= 'number' or has > WIDEST then return nil end
      if has > 0 then sums[kind] = sums[kind] + #call('LPOS', list, job.id, 'COUNT', 0) end
    end
  end
  return sums['downstream:'] + sums['broken:'], sums['broken:'], length
end

-- A job that waits must count exactly the edges that are there; without any it is due. One that gives up now is left: lists of
-- its upstreams may have expired.
local function check_needs(job)
  local needed, broken = unpack(call('HMGET', job.hash, 'needs', 'broken'))
  local gives_up = tonumber(call('ZSCORE', key('scheduled'), job.id) or NEVER) <= now
  if not needed or job.state ~= 'scheduled' or gives_up then return end
  local outstanding, failed, length = count_edges(job)
  if not outstanding then return end
  local runs, counted, counted_failed = job.rules.on_failure == 'run', tonumber(whole_number(needed)), tonumber(whole_number(broken, 0))
  local left = outstanding - (runs and failed or 0)
  local agrees = runs and counted - counted_failed == left or counted == outstanding and counted_failed == failed
  if agrees and left > 0 then return end
  if length == 0 and not agrees then return fix('broken upstream') end     -- the list of its upstreams is lost
  fix('needs ' .. outstanding)
  if only_looks then return end
  begin_once()
  if left > 0 then return call('HSET', job.hash, 'needs', outstanding, 'broken', failed) end
  call('HDEL', job.hash, 'needs', 'broken', 'cause')
  call('ZADD', key('scheduled'), digits(math.max(now, job.rules.at or now + (job.rules.delay or 0))), job.id)
  wake(job.rules.queue)
end

-- A workflow counts its member as it is.
local function check_member(job)
  local workflow, counted_as = job.rules.workflow, membership().COUNTED_AS[job.state] or 0
  if not workflow or call('EXISTS', key('workflow:', workflow)) == 0 then return end
  local members = key('members:', workflow)
  local stands = peek('ZSCORE', members, job.id)
  if type(stands) ~= 'table' and tonumber(stands or nil) ~= counted_as then fix('member', 'ZADD', members, counted_as, job.id) end
end

-- A step that called a job has an edge from it. If that job is gone, a caller that waits for it is due, and calls it again.
local function check_call(job, name, called)
  local from, edge = load(called), job.id .. ' ' .. name
  local _, awaited = wait_of(job)
  if awaited ~= name or peek('LPOS', key('downstream:', called), edge) then return end
  if from.state then
    fix('called')
    if only_looks then return end
    begin_once()
    call('RPUSH', key('downstream:', called), edge)
    call('HSET', from.hash, 'watched', '2')
    if not UNFINISHED[from.state] then mark_unsettled(called, stamp) end
  elseif tonumber(call('ZSCORE', key('scheduled'), job.id) or 0) > now then
    fix('called', 'ZADD', key('scheduled'), stamp, job.id)
    if not only_looks then wake(job.rules.queue) end
  end
end

-- A job counts its steps, and a suspended one names its wait.
local function check_steps(job)
  local counted, awaits = unpack(call('HMGET', job.hash, 'steps', 'awaits'))
  if awaits and not string.match(awaits, '^%l+ %S+ %d+$') then fix('broken awaits') end
  if not counted then return end
  local fields, bytes = step_fields(job), 0
  for i = 1, #fields, 2 do
    local name, called = string.sub(fields[i], 6), string.match(fields[i + 1], '^%d+ call\n(%S+)$')
    bytes = bytes + #name + #(string.match(fields[i + 1], '\n(.*)$') or '')
    if called then check_call(job, name, called) end
  end
  local sum = digits(#fields / 2) .. ' ' .. digits(bytes)
  if counted ~= sum then fix('steps', 'HSET', job.hash, 'steps', sum) end
end

-- A workflow has ended when it is sealed and each member has. A member that was lost does not end.
local function check_workflow(id)
  local about, members = key('workflow:', id), key('members:', id)
  local state, ended_at = unpack(peek('HMGET', about, 'state', 'ended_at'))
  if state ~= 'open' and state ~= 'sealed' and state ~= 'cancelled' then
    if call('EXISTS', about) == 1 then fix('broken workflow') end
    return
  end
  check_edges('/' .. id)
  local unfinished = peek('ZRANGE', members, 0, 0, 'BYSCORE', 'LIMIT', 0, LISTS)
  if unfinished.err then return fix('foreign') end
  local left = #unfinished
  for _, job_id in ipairs(unfinished) do
    if call('EXISTS', key('job:', job_id)) == 0 then
      fix('gone', 'ZREM', members, job_id)
      left = left - 1
    end
  end
  local is_over = state ~= 'open' and left == 0 and not membership().restore(members)
  if is_over == (ended_at ~= false) then return end
  fix('ended')
  if only_looks then return end
  begin_once()
  if not is_over then
    for _, name in ipairs({members, about}) do call('PERSIST', name) end
    return call('HDEL', about, 'ended_at')
  end
  membership().end_now(id)
end

-- Check the edges, the membership and the steps of a job.
local function check_linked(id)
  local job = load(id)
  if not job.state or not is_name(job.rules.queue) then return end
  if job.rules.on_failure then check_needs(job) end
  check_member(job)
  check_steps(job)
end
-- luacheck: pop
