-- lib/edges: jobs that wait for others, and members of workflows. It needs base, queue, flow, calls and members; made at the first use.
-- luacheck: push ignore 211
local KEEP_UPSTREAM = 604800000             -- ms for which at least a completed job is kept that others waited for: 7 days
local function make_edges()
  local ROOM = 50                          -- edges that one call settles
  local LIVES = {scheduled = true, queued = true, running = true}
  local AS_JOB = {open = 'scheduled', sealed = 'completed', cancelled = 'cancelled'}
  local E, room = {LIVES = LIVES}, ROOM
  for _, command in ipairs({'RPUSH', 'LTRIM', 'PEXPIRE', 'ZCOUNT', 'ZREM'}) do needs(command, key('job:'), '0', '0') end
  needs('PERSIST', key('job:'))

  -- Read the fields of a job that waits, before the first write: `needs` are its edges that are not fulfilled, `broken` those of
  -- them whose upstream failed, `cause` is the upstream that cancelled or holds it.
  function E.read(job)
    if job.state and job.rules.on_failure and job.broken == nil then
      local needed, broken, cause = unpack(call('HMGET', job.hash, 'needs', 'broken', 'cause'))
      job.needs, job.broken, job.cause = tonumber(whole_number(needed)), tonumber(whole_number(broken, 0)), cause
      get_queue(job.rules.queue)
      check_flow(job)
    end
    return job
  end

  -- An upstream: a job, perhaps gone, even if its id was given again; or a workflow ("/" and its id), as a job that ends when sealed.
  function E.upstream(id)
    local workflow = string.match(id, '^/(.+)$')
    if workflow and not loaded[id] then
      local flow_hash = key('workflow:', workflow)
      local state = peek('HGET', flow_hash, 'state')
      loaded[id] = {id = id, hash = flow_hash, state = AS_JOB[state] or 'cancelled', watched = '2', workflow = workflow}
    end
    local job = load(id)
    return job.watched == '2' and job or {id = id, state = 'gone', watched = '2'}
  end

  -- Before the first write: read the edges that this call may settle, for the case that the job ends, or is retried. With
  -- `is_now`, those that its present state has left.
  function E.look(job, is_now)
    if job.watched ~= '2' then return job end
    local mends, broken = (LIVES[job.state] or false) == (is_now or false), call('LLEN', key('broken:', job.id))
    mends = mends or job.state == 'completed' and broken > 0
    job.list, job.edges = key(mends and 'broken:' or 'downstream:', job.id), {}
    call('LLEN', key('downstream:', job.id))
    if room > 0 then job.edges = call('LRANGE', job.list, 0, room - 1) end
    room = room - #job.edges
    for _, id in ipairs(job.edges) do if not read_caller(id) then E.read(load(id)) end end
    return job
  end

  -- The score of a job that waits: when it gives up, or a moment that does not come.
  function E.wait_until(job) return math.min(now + (job.rules.give_up or 1e14), tonumber(NEVER)) end
  local function kept_for(job)
    return math.max(job.rules.retention, job.state ~= 'completed' and KEEP_DEAD or job.watched == '2' and KEEP_UPSTREAM or 60000)
  end
  function E.forget_needs(job)
    call('HDEL', job.hash, 'needs', 'broken', 'cause')
    job.needs, job.cause = nil, nil
  end

  -- All that the job waited for has ended: it is due, or will be after its delay.
  local function start(job, place)
    local rules, at = job.rules, now
    if rules.at then at = math.max(now, rules.at) elseif rules.delay then at = math.min(now + rules.delay, 1e14 - 1) end
    local payload = string.sub(job.spec, #rules.header + 1)
    job.rules = read_header(string.gsub(string.gsub(rules.header, ' at=%S+', ''), ' delay=%S+', '') .. ' at=' .. digits(at))
    job.spec = job.rules.header .. payload
    call('HSET', job.hash, 'spec', job.spec)
    E.forget_needs(job)
    if at > now then return place(job, 'scheduled', at, 'upstream') end
    call('ZREM', key('scheduled'), job.id)
    place(job, 'queued', rank(rules.priority, next_seq(1)), 'upstream', 'ready_at', stamp)
  end

  function E.cancel(job, why, place)
    call('ZREM', key('scheduled'), job.id)
    call('HSET', job.hash, 'error', why)
    place(job, 'cancelled', now + kept_for(job), 'upstream')
  end

  -- How many of its upstreams a job waits for.
  function E.waits_for(job) return job.needs - (job.rules.on_failure == 'run' and job.broken or 0) end
  local function fulfil(job, _, place)
    job.needs = job.needs - 1
    call('HSET', job.hash, 'needs', job.needs)
    if job.state == 'scheduled' and E.waits_for(job) <= 0 then start(job, place) end
  end

  -- The upstream failed. Its own retry mends the edge.
  local function break_off(job, from, place)
    job.broken = job.broken + 1
    call('RPUSH', key('broken:', from.id), job.id)
    call('HSET', job.hash, 'broken', job.broken)
    if job.state ~= 'scheduled' then return end
    local with_all = from.op and string.find(from.op, '^cancel:all') and from.rules.workflow == job.rules.workflow
    local runs = job.rules.on_failure == 'run' and not from.workflow and not (with_all and from.state == 'cancelled')
    if runs then return E.waits_for(job) <= 0 and start(job, place) end
    job.cause = from.id
    call('HSET', job.hash, 'cause', from.id)
    if from.workflow then return E.cancel(job, 'unsealed the workflow ' .. from.workflow .. ' was not sealed', place) end
    if job.rules.on_failure ~= 'hold' or not from.rules then
      return E.cancel(job, 'upstream job ' .. from.id .. ' is ' .. from.state, place)
    end
    local ends = call('ZSCORE', key(from.state), from.id)
    if ends then call('ZADD', key('scheduled'), 'XX', 'LT', ends, job.id) end
  end

  -- Another upstream that failed, if there is one among the first 100.
  local function other_cause(job, from)
    for _, id in ipairs(call('LRANGE', key('upstream:', job.id), 0, 99)) do
      if id ~= from.id and (membership().COUNTED_AS[load(id).state] or 0) > 1 then return id end
    end
    return from.id
  end

  -- The upstream that had failed was retried: its downstream jobs wait again.
  local function mend(job, from, place)
    if job.broken == 0 then return end
    job.broken = job.broken - 1
    call('RPUSH', key('downstream:', from.id), job.id)
    call('HSET', job.hash, 'broken', job.broken)
    if job.broken > 0 and job.cause == from.id then
      job.cause = other_cause(job, from)
      call('HSET', job.hash, 'cause', job.cause)
    end
    if job.broken > 0 or not job.cause then return end
    job.cause = nil
    call('HDEL', job.hash, 'cause')
    if job.state == 'scheduled' then return call('ZADD', key('scheduled'), 'XX', E.wait_until(job), job.id) end
    if job.state ~= 'cancelled' then return end
    call('ZREM', key('cancelled'), job.id)
    call('HDEL', job.hash, 'finished_at', 'error')
    backlog(job.rules.queue, 1, size(job))
    place(job, 'scheduled', E.wait_until(job), 'upstream')
    E.on_change(job, place)
  end

  -- Make the edges of a job agree with its state: those that were looked at now, any others in a later call.
  function E.settle(from, place)
    local broken, downstream = key('broken:', from.id), key('downstream:', from.id)
    local lives, is_done = LIVES[from.state], from.state == 'completed'
    -- A job that was retried may be completed before all its edges are restored: they are first.
    local mends = lives or is_done and from.list == broken
    local list = mends and broken or downstream
    local edges = from.list == list and from.edges or {}
    from.edges = {}
    if #edges > 0 then call('LTRIM', list, #edges, -1) end
    for _, id in ipairs(edges) do
      local job = load(id)
      if string.find(id, ' ', 1, true) then
        settle_call(id, from, mends, place)
      elseif job.needs then
        local act = mends and mend or is_done and fulfil or break_off
        act(job, from, place)
      end
    end
    if not lives and not is_done then call('PEXPIRE', broken, from.rules and kept_for(from) or KEEP_DEAD) end
    if (lives or call('EXISTS', downstream) == 0) and not ((lives or is_done) and call('EXISTS', broken) == 1) then
      unmark_unsettled(from.id)
      return from.rules and from.rules.workflow and membership().check_end(from.rules.workflow)
    end
    E.left = true                           -- for another call
    mark_unsettled(from.id, stamp)
    if from.rules then wake(from.rules.queue) end
  end

  -- The edges of a job, or of a workflow, are due again: some were left, or the workflow was not sealed in time.
  function E.look_again(id)
    local from = E.upstream(id)
    return E.look(from, not (from.workflow and from.state == 'scheduled'))
  end
  function E.go_on(from, place)
    if from.workflow and from.state == 'scheduled' then
      from.state = 'cancelled'
      call('HSET', from.hash, 'state', 'cancelled')
    end
    E.settle(from, place)
    if from.workflow then membership().check_end(from.workflow) end
  end
  -- A job has waited for as long as it may.
  function E.give_up(job, place)
    local why = job.cause and 'upstream job ' .. job.cause .. ' cannot be retried any more' or 'upstream_timeout it waited for too long'
    E.cancel(job, why, place)
  end

  -- A job has ended, or is unfinished again.
  function E.on_change(job, place)
    if job.rules.workflow then membership().note(job) end
    if job.rules.on_failure and LIVES[job.state] then peek('PERSIST', key('upstream:', job.id)) end
    if job.rules.on_failure and not LIVES[job.state] then peek('PEXPIRE', key('upstream:', job.id), kept_for(job)) end
    if job.watched == '2' then E.settle(job, place) end
  end
  return E
end

local edges_of
local function edges()
  edges_of = edges_of or make_edges()
  return edges_of
end
-- Has this job edges, or a workflow?
local function is_linked(job) return job.watched == '2' or job.rules.workflow or job.rules.on_failure end
-- luacheck: pop
