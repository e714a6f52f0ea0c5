-- straight/claim: jobs without rules, for a first attempt, from up to four different queues without a pause, groups or limits of what
-- runs, while nothing falls due within 2 s, no worker waits for a pattern and none was replaced. Anything else goes on to the rest of
-- the script, with nothing written.
-- luacheck: push ignore 211 231
if #ARGV >= 5 and #ARGV <= 8 then
  local call, peek, find, match = redis.call, redis.pcall, string.find, string.match
  local base, claim_id, worker, lease, n = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
  local memo, jobs, known = base .. ':claim:' .. claim_id, base .. ':job:', base .. ':queues'
  local running, events = base .. ':running', base .. ':events'
  local backlog, counts = base .. ':backlog', base .. ':counts'
  local plain = n and n >= 1 and n <= 100 and n % 1 == 0 and #lease <= 14 and find(lease, '^%d+$') and tonumber(lease) >= 2000
    and #claim_id >= 22 and #claim_id <= 64 and find(claim_id, '^[%w_.:-]+$')
    and #worker <= 128 and find(worker, '^[%w_.:-]+$') and worker ~= '.' and worker ~= '..'
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local soon = now + 2000
  if plain then
    local namespace = call('HMGET', base, 'layout', 'patterns', 'replaced')
    local first_end = call('ZRANGE', running, '0', '0', 'WITHSCORES')[2]
    local first_due = call('ZRANGE', base .. ':scheduled', '0', '0', 'WITHSCORES')[2]
    local occurrence = peek('ZRANGE', base .. ':schedules', '0', '0', 'WITHSCORES')[2]
    plain = namespace[1] == '1' and not namespace[2] and not namespace[3] and not call('GET', memo)
      and not (first_end and tonumber(first_end) < soon) and not (first_due and tonumber(first_due) < soon)
      and not (occurrence and tonumber(occurrence) < soon) and call('HLEN', counts) < 20000
    -- These raise for a key of a wrong type before the first write
    call('XLEN', events)
    call('HLEN', backlog)
  end
  local reply, taken, leases = {'', 2000, 0}, {}, {}
  local BOUNDS = {5, 20, 100, 500, 1000, 2000, 5000, 15000, 60000, 300000, 900000, 3600000}
  local queues, at = {}, 3
  for i = 5, plain and #ARGV or 0 do
    local queue = {name = ARGV[i], ids = {}, ranks = {}, waits = {}, waited = 0}
    local members = base .. ':queue:' .. queue.name
    local settings = #queue.name <= 128 and find(queue.name, '^[%w_.:-]+$') and queue.name ~= '.' and queue.name ~= '..'
      and (call('HGET', known, queue.name) or '')
    queue.woken = call('LLEN', base .. ':wake:' .. queue.name)
    local room = n - #taken
    local found = room > 0 and call('ZRANGE', members, '0', tostring(room - 1), 'WITHSCORES')
      or call('ZCARD', members) and {}
    plain = settings and (settings == '' or not (find(settings, ' paused=', 1, true) or find(settings, ' flow=1', 1, true)))
      and not queues[queue.name]
    for j = 1, plain and #found or 0, 2 do
      local id = found[j]
      local state, spec, attempt, tries_left = unpack(peek('HMGET', jobs .. id, 'state', 'spec', 'attempt', 'tries_left'))
      local submitted_at = state == 'queued' and spec and not attempt and not tries_left
        and match(spec, '^%S+ %S+ (%d+)\n')
      plain = submitted_at
      if not plain then break end
      queue.ids[#queue.ids + 1], queue.ranks[#queue.ranks + 1], taken[#taken + 1] = id, found[j + 1], id
      reply[at + 1], reply[at + 2], reply[at + 4], reply[at + 5], reply[at + 6] = id, 1, spec, '', ''
      at = at + 6
      local ms, class = now - submitted_at, 1
      while BOUNDS[class] and ms > BOUNDS[class] do class = class + 1 end
      local bound = BOUNDS[class] or 'inf'
      queue.waits[bound], queue.waited = (queue.waits[bound] or 0) + 1, queue.waited + math.max(0, ms)
    end
    if not plain then break end
    queues[#queues + 1], queues[queue.name] = queue, true
  end
  if plain and #taken == 0 then return reply end
  if plain then
    local expires, stamp = now + math.min(tonumber(lease), 305000), string.format('%d', now)
    local ends = string.format('%d', expires)
    local fence = math.max((tonumber(call('HGET', base, 'fence') or 0) or 0) + 1, time[1] * 1000000 + time[2])
    fence = string.format('%d', fence)
    local token = fence .. '.' .. claim_id
    reply[1] = token
    call('DEL', base .. ':')                -- the following writes are allowed even when memory is full
    call('SET', memo, token .. ' ' .. table.concat(taken, ' '), 'PX', '10000')
    call('HSET', base, 'fence', fence)
    for i, id in ipairs(taken) do leases[2 * i - 1], leases[2 * i], reply[6 * i] = ends, id, expires end
    for _, queue in ipairs(queues) do
      for i, id in ipairs(queue.ids) do
        call('HSET', jobs .. id, 'state', 'running', 'token', token, 'attempt', '1', 'tries_left', '2',
          'worker', worker, 'claimed_at', stamp, 'rank', queue.ranks[i])
      end
      local name = queue.name
      if #queue.ids > 0 then
        call('ZREM', base .. ':queue:' .. name, unpack(queue.ids))
        local runs = peek('HINCRBY', backlog, name .. ' running', tostring(#queue.ids))
        if type(runs) ~= 'number' then
          call('HSET', backlog, name .. ' running', #queue.ids)
        elseif runs < 0 then
          call('HDEL', backlog, name .. ' running')
        end
        queue.waits.ms = queue.waited
        for class, times in pairs(queue.waits) do
          local field, by = name .. ' wait ' .. class, string.format('%d', times)
          if type(peek('HINCRBY', counts, field, by)) ~= 'number' then call('HSET', counts, field, by) end
        end
      end
      if call('ZCARD', base .. ':queue:' .. name) > 0 then
        if queue.woken == 0 then call('LPUSH', base .. ':wake:' .. name, '1') end
      elseif queue.woken > 0 then
        call('DEL', base .. ':wake:' .. name)
      end
    end
    call('ZADD', running, unpack(leases))
    for i = 1, #taken, 10 do
      call('XADD', events, 'MAXLEN', '~', '10000', '*', 'jobs', table.concat(taken, ' ', i, math.min(i + 9, #taken)),
        'state', 'running', 'code', worker)
    end
    return reply
  end
end
-- luacheck: pop
