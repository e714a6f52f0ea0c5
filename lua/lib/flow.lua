-- lib/flow: flow control of a queue: the turns of its groups, the places of running jobs, the tokens of rates. It
-- needs base and queue. Its functions are made at the first use, so that calls for other queues do not pay for them.
-- luacheck: push ignore 211
local function make_flow()
  local STEP = 840                          -- a group with a share of 1 moves so far with each job
  local BAND = 17592186044416               -- a turn's score has the head's priority above this, the group's tag below
  local F, known = {}, {}
  needs('SADD', key('places:'), '')         -- else a place would not be taken, and nobody would know
  needs('SREM', key('places:'), '')
  -- Beside the sets of waiting jobs, all can be computed anew: a list or number of a wrong type counts as empty, and places
  -- of a wrong type as all taken.
  local function number(reply) return type(reply) ~= 'table' and tonumber(reply or nil) or nil end
  local function size_of(reply) return number(reply) or math.huge end
  local function list(reply) return type(reply) == 'table' and not reply.err and reply or {} end

  -- A rate: the ms for each token, and how many may be saved up; without a burst those of 100 ms.
  local function rate_of(text, kind)
    local n, per = tonumber(setting(text, kind .. 'rate') or 0), tonumber(setting(text, kind .. 'per') or 0)
    local burst = tonumber(setting(text, kind .. 'burst') or 0)
    return n > 0 and per > 0 and {ms = per / n, burst = burst > 0 and burst or math.max(1, math.floor(n * 100 / per))} or nil
  end

  function F.of(name)
    local f = known[name]
    if f then return f end
    f = setmetatable({name = name, memory = key('flow:', name), places = key('places:', name), turns = key('turns:', name),
      full = key('full:', name), tokens = key('tokens:', name), all = key('grouped:', name), bucket = key('tat:', name)},
      {__index = F})
    known[name] = f
    local clock, alarm, sweep, cursors = unpack(list(peek('HMGET', f.memory, 'clock', 'alarm', 'sweep', 'cursors')))
    f.clock, f.alarm, f.sweep, f.cursors = number(clock) or 0, alarm, number(sweep), cursors or ''
    f:read_limits()
    return f
  end
  function F.read_limits(f)
    local settings = get_queue(f.name).settings
    f.groups, f.own_limits, f.rate = {}, nil, rate_of(settings, '')
    f.concurrency = tonumber(setting(settings, 'concurrency') or nil)
  end

  -- A group with its limits: its own ones before those that the queue sets for each. '' stands for the jobs without a
  -- group, to which only the queue's limits apply.
  function F.group(f, name)
    local g = f.groups[name]
    if g then return g end
    f.own_limits = f.own_limits or number(peek('HLEN', key('groups:', f.name))) or 0
    local own = name ~= '' and f.own_limits > 0 and peek('HGET', key('groups:', f.name), name)
    own = type(own) == 'string' and ' ' .. own or ''
    local usual, suffix = name ~= '' and get_queue(f.name).settings or '', f.name .. '|' .. name
    g = {name = name, home = name == '' and key('queue:', f.name) or key('waiting:', suffix), places = key('places:', suffix),
      bucket = key('tat:', suffix), rate = rate_of(own, '') or rate_of(usual, 'group_'),
      step = math.floor(STEP / tonumber(string.match(own, ' share=(%d+)') or 1)),
      concurrency = tonumber(setting(own, 'concurrency') or setting(usual, 'group_concurrency') or nil)}
    f.groups[name] = g
    return g
  end

  -- When a rate allows a cost, by the moment at which its bucket is full again. One above the burst needs a full bucket.
  local function full_at(owner)
    owner.full_at = owner.full_at or number(peek('GET', owner.bucket)) or 0
    return owner.full_at
  end
  local function allowed_at(owner, cost)
    local rate = owner.rate
    return rate and full_at(owner) - math.max(0, rate.burst - cost) * rate.ms or 0
  end
  -- Take tokens; `keep_tokens` writes what they are then.
  local function charge(owner, cost)
    if not owner.rate then return end
    owner.full_at, owner.charged = math.min(math.max(full_at(owner), now) + cost * owner.rate.ms, now + 1e12), true
  end
  local function keep_tokens(owner)
    if not owner.charged then return end
    if owner.full_at <= now then return peek('DEL', owner.bucket) end
    peek('SET', owner.bucket, string.format('%.17g', owner.full_at), 'PX', math.ceil(owner.full_at - now))
  end
  local function cost_of(id)
    local spec = id and peek('HGET', key('job:', id), 'spec')
    return tonumber(type(spec) == 'string' and read_header(spec).cost or 1)
  end
  -- The first job of a group, and its score; those of the next `more` after them.
  local function head(g, more) return unpack(list(peek('ZRANGE', g.home, 0, more or 0, 'WITHSCORES'))) end

  -- Which limit of its own holds a group's next job back, and until when if it is a rate; nil if none does.
  local function held_back(g, cost)
    g.running = g.concurrency and size_of(peek('SCARD', g.places)) or 0
    if g.concurrency and g.running >= g.concurrency then return 'concurrency' end
    local at = allowed_at(g, cost)
    if at > now then return 'rate', at end
  end
  local function rest(f, g, turn, at)
    peek('ZREM', f.turns, g.name)
    peek('ZADD', f.full, turn, g.name)
    if at then peek('ZADD', f.tokens, math.ceil(at), g.name) else peek('ZREM', f.tokens, g.name) end
  end

  -- The score of a turn: the priority of the group's first job before the tag.
  function F.score_of_turn(score, tag) return math.floor(score / BAND) * BAND + math.min(tag, BAND - 1) end

  -- Put a group where its waiting jobs say: into the turns, or among those that a limit holds back.
  function F.settle(f, g)
    local id, score = head(g)
    if not id then
      for _, set in ipairs({f.turns, f.full, f.tokens}) do peek('ZREM', set, g.name) end
      return
    end
    local turn, rests = number(peek('ZSCORE', f.turns, g.name)), number(peek('ZSCORE', f.full, g.name))
    local tag = turn and turn % BAND or rests and math.max(rests % BAND, f.clock) or f.clock + g.step
    local wanted, why, at = F.score_of_turn(score, tag), nil, nil
    if rests then why, at = held_back(g, g.rate and cost_of(id) or 1) end
    if why then return rest(f, g, wanted, at) end
    if rests then
      peek('ZREM', f.full, g.name)
      peek('ZREM', f.tokens, g.name)
    end
    if wanted ~= turn then peek('ZADD', f.turns, wanted, g.name) end
  end

  -- When the queue's next job may start: a moment, in the past if it may now; nil if no moment makes it start.
  function F.next_at(f)
    if setting(get_queue(f.name).settings, 'paused') then return nil end
    if f.concurrency and size_of(peek('HLEN', f.places)) >= f.concurrency then return nil end
    local group, at = list(peek('ZRANGE', f.turns, 0, 0))[1], nil
    if group then at = allowed_at(f, f.rate and cost_of(head(f:group(group))) or 1) end
    local token = tonumber(list(peek('ZRANGE', f.tokens, 0, 0, 'WITHSCORES'))[2] or nil)
    return token and math.min(at or math.huge, token) or at and math.ceil(at)
  end
  -- Does a worker (but this one) wait for this moment, or an earlier one? One that is late by 50 ms is gone; a worker that
  -- claims after the other's moment does its work, and keeps the next one itself.
  function F.is_kept(f, at, this)
    local moment, worker = string.match(f.alarm or '', '^(%d+) (.+)$')
    return moment and worker ~= this and tonumber(moment) <= at and tonumber(moment) + (this and -1 or 50) >= now
  end
  -- Wake one worker if a job may start, or if one may later and no worker waits for that moment.
  function F.call_worker(f)
    local at = f:next_at()
    if at and (at <= now or not f:is_kept(at)) then wake(f.name) end
    return at
  end

  -- The only way back of a place, at each exit from `running`. Its group, and one worker, may go on.
  function F.give_back(f, id, group)
    local g, before = f:group(group), f.concurrency and size_of(peek('HLEN', f.places))
    peek('HDEL', f.places, id)
    if group ~= '' then peek('SREM', g.places, id) end
    local rests = peek('ZSCORE', f.full, group)
    if rests then f:settle(g) end
    if rests or before and before >= f.concurrency then f:call_worker() end
  end

  -- The queue has groups or limits from now on. Its jobs without a group get their turn.
  function F.mark(f)
    local queue = get_queue(f.name)
    if queue.by_turns then return end
    queue.by_turns = true
    queue.settings = (queue.settings or '') == '' and '0 submit flow=1' or queue.settings .. ' flow=1'
    call('HSET', key('queues'), f.name, queue.settings)
    f:settle(f:group(''))
  end
  -- Jobs of these groups were queued.
  function F.arrived(f, groups)
    f:mark()
    for name in pairs(groups) do f:settle(f:group(name)) end
    f:call_worker()
  end
  -- One job is queued, or leaves its place in the queue.
  function F.enter(f, job, score)
    local g = f:group(job.rules.group or '')
    call('ZADD', g.home, score, job.id)
    if g.name ~= '' then call('ZADD', f.all, score, job.id) end
    f:arrived({[g.name] = true})
  end
  function F.leave(f, job)
    local g = f:group(job.rules.group or '')
    call('ZREM', g.home, job.id)
    if g.name ~= '' then call('ZREM', f.all, job.id) end
    f:settle(g)
    f:call_worker()                         -- the next one may need fewer tokens
  end

  F.size_of, F.list, F.head, F.held_back, F.allowed_at, F.charge, F.rest = size_of, list, head, held_back, allowed_at, charge, rest
  F.keep_tokens, F.cost_of, F.BAND, F.all_of, F.number = keep_tokens, cost_of, BAND, F, number
  return F
end

-- The flow control of a queue; nil if it has none, and the job no group.
local flow_of
local function flow(name, group)
  if not group and not get_queue(name).by_turns then return nil end
  flow_of = flow_of or make_flow()
  return flow_of.of(name)
end

-- Before the first write: read the sets in which a job waits, so that a key of a wrong type raises here.
local function check_flow(job)
  local line = flow(job.rules.queue, job.rules.group or job.held)
  if line then
    call('ZCARD', line:group(job.rules.group or '').home)
    call('ZCARD', line.all)
  end
end
-- A job leaves `running`.
local function return_place(job)
  if job.held then flow(job.rules.queue, true):give_back(job.id, job.rules.group or '') end
  job.held = nil
end
-- A job leaves `queued`, but not by a claim.
local function leave_queue(job)
  local line = flow(job.rules.queue, job.rules.group)
  if line then return line:leave(job) end
  call('ZREM', key('queue:' .. job.rules.queue), job.id)
end
-- luacheck: pop
