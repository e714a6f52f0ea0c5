-- straight/submit: one job without rules, for a queue that is known and has no settings, while no worker waits for
-- a pattern. Anything else goes on to the rest of the script, with nothing written.
-- luacheck: push ignore 211 231
if #ARGV == 5 and ARGV[4] == '' then
  local call, peek, find = redis.call, redis.pcall, string.find
  local base, id, queue, task, payload = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[5]
  local names_valid = #id <= 64 and #queue <= 128 and #task <= 128 and find(id, '^[%w_.:-]+$')
    and find(queue, '^[%w_.:-]+$') and find(task, '^[%w_.:-]+$')
    and id ~= '.' and id ~= '..' and queue ~= '.' and queue ~= '..' and task ~= '.' and task ~= '..'
  local job, members, wakeups = base .. ':job:' .. id, base .. ':queue:' .. queue, base .. ':wake:' .. queue
  local events, backlog = base .. ':events', base .. ':backlog'
  local namespace = call('HMGET', base, 'layout', 'patterns')
  if names_valid and #payload <= 1024 and namespace[1] == '1' and not namespace[2]
      and call('HGET', base .. ':queues', queue) == '' and call('EXISTS', job) == 0 then
    -- These raise for a key of a wrong type before the first write
    call('ZCARD', members)
    call('XLEN', events)
    call('HLEN', backlog)
    local woken, time = call('LLEN', wakeups), call('TIME')
    local seq = peek('HINCRBY', base, 'seq', '1')
    if type(seq) == 'number' then
      local stamp = time[1] .. string.sub('00000' .. time[2], -6, -4)
      call('HSET', job, 'state', 'queued', 'spec', queue .. ' ' .. task .. ' ' .. stamp .. '\n' .. payload)
      call('ZADD', members, string.format('%d', 1759218604441600 + seq), id)
      call('XADD', events, 'MAXLEN', '~', '10000', '*', 'jobs', id, 'state', 'queued', 'code', 'submitted')
      local jobs = peek('HINCRBY', backlog, queue .. ' jobs', '1')
      if type(jobs) ~= 'number' then
        jobs = 1
        call('HSET', backlog, queue .. ' jobs', '1')
      end
      if jobs <= 0 then
        call('HDEL', backlog, queue .. ' jobs', queue .. ' bytes', queue .. ' running')
      elseif payload ~= '' and type(peek('HINCRBY', backlog, queue .. ' bytes', tostring(#payload))) ~= 'number' then
        call('HSET', backlog, queue .. ' bytes', #payload)
      end
      if woken == 0 then call('LPUSH', wakeups, '1') end
      if type(peek('HINCRBY', base, 'submitted', '1')) ~= 'number' then call('HSET', base, 'submitted', '1') end
      return {'created'}
    end
  end
end
-- luacheck: pop
