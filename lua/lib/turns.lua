-- lib/turns: flow control, for the scripts that take jobs by turns or change limits. It needs base, queue and flow. Its
-- functions, too, are made at the first use.
-- luacheck: push ignore 211
local LOOKED = 100                          -- groups that a claim looks at beyond those from which it takes a job
local FIRST = 1000                          -- running jobs, or groups, looked at when limits change
local function add_turns(F)
  local size_of, list, head, held_back, allowed_at, BAND = F.size_of, F.list, F.head, F.held_back, F.allowed_at, F.BAND

  -- A job starts: it takes its group's place, which bears its id, and tokens. Is the group full now?
  local function hold(f, g, id, cost)
    local n = g.name ~= '' and peek('SADD', g.places, id) and g.running + 1 or 0
    F.charge(f, cost)
    F.charge(g, cost)
    F.keep_tokens(g)
    return g.concurrency and n >= g.concurrency
  end

  -- Take up to n jobs in the order of the turns. All limits are looked at before `take` takes a job. Returns true unless the
  -- queue is paused.
  function F.serve(f, n, take)
    if setting(get_queue(f.name).settings, 'paused') then return end
    local left, g, cost, why, at = n + LOOKED, nil, 1, nil, nil
    local gone, started = {}, {}            -- ids that leave the waiting jobs of groups; ids and groups for the places
    begin()
    if f.sweep then f:recheck(f.sweep, LOOKED) end
    for _, name in ipairs(list(peek('ZRANGE', f.tokens, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, left))) do f:settle(f:group(name)) end
    local function admit(rules)
      cost = tonumber(rules.cost or 1)
      why, at = held_back(g, cost)
      if not why and allowed_at(f, cost) > now then why = 'queue' end
      return not why and digits(cost)
    end
    local room = f.concurrency and f.concurrency - size_of(peek('HLEN', f.places)) or math.huge
    while n > 0 and left > 0 and room > 0 do
      left = left - 1
      local name, turn = unpack(list(peek('ZRANGE', f.turns, 0, 0, 'WITHSCORES')))
      if not name then break end
      g = f:group(name)
      local id, score, _, after = head(g, 1)
      if not id or math.floor(score / BAND) ~= math.floor(turn / BAND) then
        f:settle(g)
      else
        local word, filled = take(id, score, admit), false
        if word == 'full' or word == 'held' and why == 'queue' then break end
        if word == 'held' then
          F.rest(f, g, turn, at)
        else
          call('ZREM', g.home, id)
          gone[#gone + 1] = name ~= '' and id or nil
          if word == 'taken' then
            started[#started + 1], started[#started + 2] = id, name
            filled = hold(f, g, id, cost)
            n, room, f.clock = n - 1, room - 1, math.max(f.clock, turn % BAND)
            turn = turn + g.step
          end
          turn = after and F.score_of_turn(after, turn % BAND)
          if not turn then
            peek('ZREM', f.turns, name)
          elseif filled then
            F.rest(f, g, turn)
          else
            peek('ZADD', f.turns, turn, name)
          end
        end
      end
    end
    if #gone > 0 then call('ZREM', f.all, unpack(gone)) end
    if #started > 0 then peek('HSET', f.places, unpack(started)) end
    F.keep_tokens(f)
    peek('HSET', f.memory, 'clock', digits(f.clock))
    return true
  end

  -- The ms that a worker may wait: at most `cap`, and until the moment of a token if no other does. It waits no longer for another.
  function F.appoint(f, worker, cap)
    local at, keeper = f:next_at(), string.match(f.alarm or '', '^[1-9]%d* (.+)$')
    cap = math.min(cap, f.pace or cap)
    local waits = at and at > now and at < now + cap and not f:is_kept(at, worker)
    local moment = waits and math.ceil(at) or 0
    if waits or keeper == worker then peek('HSET', f.memory, 'alarm', digits(moment) .. ' ' .. worker) end
    return waits and moment - now or cap
  end

  -- From an index on, give those groups a turn that no limit holds back now; remember where to go on.
  function F.recheck(f, from, n)
    local found, gone = list(peek('ZRANGE', f.full, from, from + n - 1)), 0
    for _, name in ipairs(found) do
      f:settle(f:group(name))
      if not peek('ZSCORE', f.full, name) then gone = gone + 1 end
    end
    f.sweep = #found == n and from + n - gone or nil
    if f.sweep then peek('HSET', f.memory, 'sweep', f.sweep) else peek('HDEL', f.memory, 'sweep') end
  end

  -- A queue gets its first limits: its running jobs hold places.
  function F.start(f)
    f:mark()
    f:adopt(list(peek('ZRANGE', key('running'), 0, FIRST - 1)))
  end
  -- It has none any more, and neither groups nor places.
  function F.stop(f)
    peek('DEL', f.memory, f.turns, f.full, f.tokens, f.bucket)
  end

  -- Limits have changed: lower ones hold for the next claim; higher ones let groups, and a worker, go on now.
  function F.changed(f)
    f:read_limits()
    f:recheck(0, FIRST)
    f:call_worker()
  end

  -- What is wrong with limits by their names; nil if nothing is.
  function F.fault(given)
    for name, value in pairs(given) do
      if tonumber(value) < 1 then
        local advice = string.find(name, 'concurrency') and '; to start no jobs, pause the queue' or ''
        return name .. '=' .. value .. ': use 1 or more' .. advice
      end
    end
    for _, kind in ipairs({'', 'group_'}) do
      local rate, per = given[kind .. 'rate'], given[kind .. 'per']
      if rate and not per then return kind .. 'rate=' .. rate .. ': say for how many ms, with ' .. kind .. 'per=60000 for a minute' end
      local alone = not rate and (per and 'per' or given[kind .. 'burst'] and 'burst')
      if alone then return kind .. alone .. '=' .. given[kind .. alone] .. ': it belongs to a ' .. kind .. 'rate: give that too' end
    end
  end

  -- The cost of a running job is another one than it took tokens for.
  function F.spend(f, job, cost)
    local g = f:group(job.rules.group or '')
    F.charge(f, cost - job.held)
    F.charge(g, cost - job.held)
    F.keep_tokens(f)
    F.keep_tokens(g)
    job.held = digits(cost)
    call('HSET', job.hash, 'held', job.held)
    if peek('ZSCORE', f.full, g.name) then f:settle(g) end
    f:call_worker()
  end

  -- How many of a queue's jobs could start now, under all limits. Of many groups, as many as the first of them show.
  function F.startable(f)
    if not f:next_at() then return 0 end
    local function allowed(owner, cost)
      local rate = owner.rate
      if not rate then return math.huge end
      local free = math.min(rate.burst, rate.burst - (allowed_at(owner, rate.burst) - now) / rate.ms)
      return cost > rate.burst and math.floor(free / rate.burst) or math.max(0, math.floor(free / cost))
    end
    local names, sum, groups, cost = list(peek('ZRANGE', f.turns, 0, LOOKED - 1)), 0, size_of(peek('ZCARD', f.turns)), 1
    for _, name in ipairs(list(peek('ZRANGE', f.tokens, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, LOOKED))) do names[#names + 1] = name end
    for _, name in ipairs(names) do
      local g = f:group(name)
      local room = g.concurrency and g.concurrency - size_of(peek('SCARD', g.places)) or math.huge
      cost = (f.rate or g.rate) and F.cost_of(head(g)) or 1
      sum = sum + math.max(0, math.min(size_of(peek('ZCARD', g.home)), room, allowed(g, cost)))
    end
    sum = #names > 0 and math.floor(sum * math.max(1, groups / #names)) or 0
    return math.max(0, math.min(sum, allowed(f, cost), f.concurrency and f.concurrency - size_of(peek('HLEN', f.places)) or math.huge))
  end

  function F.runs(f, id)
    local state, spec = unpack(list(peek('HMGET', key('job:', id), 'state', 'spec')))
    return state == 'running' and type(spec) == 'string' and string.match(spec, '^%S+') == f.name
  end
  -- A running job without a place (it was taken before the queue had limits, or somebody deleted the place) gets one. Stops, and
  -- returns nothing, once `may` says no.
  function F.adopt(f, ids, may)
    local placed = #ids > 0 and list(peek('HMGET', f.places, unpack(ids))) or {}
    for i, id in ipairs(ids) do
      local job = not placed[i] and f:runs(id) and load(id)
      if job then
        if may and not may() then return end
        local g = f:group(job.rules.group or '')
        peek('HSET', f.places, id, g.name)
        if g.name ~= '' then peek('SADD', g.places, id) end
        if not job.held then call('HSET', job.hash, 'held', job.rules.cost or '1') end
      end
    end
    return true
  end
end

-- The flow control of a queue with these functions; nil if it has none.
local function by_turns(name, group)
  local line = flow(name, group)
  if line and not line.serve then add_turns(line.all_of) end
  return line
end
-- luacheck: pop
