-- straight/complete: first attempts of jobs without rules, which nobody watches or logs and which hold no place, while no finished job
-- is to be deleted but completed ones past their retention. Anything else goes on to the rest of the script, with nothing written.
-- luacheck: push ignore 211 231
if #ARGV >= 3 and #ARGV <= 192 and #ARGV % 3 == 0 then
  local call, peek, find = redis.call, redis.pcall, string.find
  local base, n = KEYS[1], #ARGV / 3
  local running, completed, events = base .. ':running', base .. ':completed', base .. ':events'
  local backlog, counts, known, jobs = base .. ':backlog', base .. ':counts', base .. ':queues', base .. ':job:'
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local stamp = string.format('%d', now)
  local plain = call('HGET', base, 'layout') == '1' and not call('HGET', known, '*') and call('HLEN', known) <= 10000
    and call('HLEN', counts) < 20000 and call('ZCARD', completed) + n <= 100000
  for i = 1, plain and 2 or 0 do
    local state = base .. (i == 1 and ':dead' or ':cancelled')
    local kept = call('ZCARD', state)
    plain = plain and kept <= 100000
      and (kept == 0 or tonumber(call('ZRANGE', state, '0', '0', 'WITHSCORES')[2]) > now)
  end
  -- These raise for a key of a wrong type before the first write
  call('XLEN', events)
  call('HLEN', backlog)
  call('ZCARD', running)
  local BOUNDS = {5, 20, 100, 500, 1000, 2000, 5000, 15000, 60000, 300000, 900000, 3600000}
  local headers, stories, done, left = {}, {}, {}, {}
  for i = 1, plain and n or 0 do
    local id, token = ARGV[3 * i - 2], ARGV[3 * i - 1]
    local state, spec, holder, attempt, claimed_at, worker, ops, watched, logged, held = unpack(peek('HMGET', jobs .. id,
      'state', 'spec', 'token', 'attempt', 'claimed_at', 'worker', 'ops', 'watched', 'logged', 'held'))
    plain = state == 'running' and spec and holder == token and attempt == '1' and worker and not done[id]
      and not (ops or watched or logged or held) and claimed_at and #claimed_at <= 15 and find(claimed_at, '^%d+$')
    local _, header_end, queue = find(plain and spec or '', '^(%S+) %S+ %d+\n')
    plain = plain and header_end
    if not plain then break end
    done[i], done[id] = id, true
    headers[i] = string.sub(spec, 1, header_end - 1)
    stories[i] = claimed_at .. ' ' .. worker .. ' ' .. stamp .. ' completed'
    local sums = left[queue] or {jobs = 0, bytes = 0, took = {ms = 0}}
    left[queue] = sums
    local ms, class, took = now - claimed_at, 1, sums.took
    while BOUNDS[class] and ms > BOUNDS[class] do class = class + 1 end
    local bound = BOUNDS[class] or 'inf'
    took[bound], took.ms = (took[bound] or 0) + 1, took.ms + math.max(0, ms)
    sums.jobs, sums.bytes = sums.jobs + 1, sums.bytes + #spec - header_end
  end
  if plain then
    local old = call('ZRANGE', completed, '-inf', stamp, 'BYSCORE', 'LIMIT', '0', tostring(2 * n))
    local answers, retained, until_ = {}, {}, string.format('%d', now + 86400000)
    call('DEL', base .. ':')                -- the following writes are allowed even when memory is full
    for i = 1, n do
      local hash = jobs .. done[i]
      call('DEL', hash)
      call('HSET', hash, 'state', 'completed', 'spec', headers[i], 'token', ARGV[3 * i - 1], 'attempt', '1',
        'ended', 'complete completed', 'finished_at', stamp, 'result', ARGV[3 * i], 'attempt:1', stories[i])
      answers[i], retained[2 * i - 1], retained[2 * i] = 'completed', until_, done[i]
    end
    call('ZREM', running, unpack(done))
    call('ZADD', completed, unpack(retained))
    for i = 1, n, 10 do
      call('XADD', events, 'MAXLEN', '~', '10000', '*', 'jobs', table.concat(done, ' ', i, math.min(i + 9, n)),
        'state', 'completed', 'code', 'completed')
    end
    if type(peek('HINCRBY', base, 'completed', tostring(n))) ~= 'number' then call('HSET', base, 'completed', n) end
    for queue, sums in pairs(left) do
      local less = string.format('%d', -sums.jobs)
      local runs = peek('HINCRBY', backlog, queue .. ' running', less)
      if type(runs) ~= 'number' or runs < 0 then call('HDEL', backlog, queue .. ' running') end
      local waiting = peek('HINCRBY', backlog, queue .. ' jobs', less)
      if type(waiting) ~= 'number' or waiting <= 0 then
        call('HDEL', backlog, queue .. ' jobs', queue .. ' bytes', queue .. ' running')
      elseif sums.bytes > 0 then
        local bytes = string.format('%d', -sums.bytes)
        if type(peek('HINCRBY', backlog, queue .. ' bytes', bytes)) ~= 'number' then
          call('HSET', backlog, queue .. ' bytes', bytes)
        end
      end
      for class, times in pairs(sums.took) do
        local field, by = queue .. ' completed ' .. class, string.format('%d', times)
        if type(peek('HINCRBY', counts, field, by)) ~= 'number' then call('HSET', counts, field, by) end
      end
    end
    if #old > 0 then
      call('ZREM', completed, unpack(old))
      for i, id in ipairs(old) do old[i] = jobs .. id end
      call('DEL', unpack(old))
    end
    return answers
  end
end
-- luacheck: pop
