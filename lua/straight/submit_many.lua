-- straight/submit_many: from 2 to 200 jobs as of straight/submit, all for one queue. One job takes less without these tables.
-- luacheck: push ignore 211 231
if #ARGV > 5 and #ARGV <= 1000 and #ARGV % 5 == 0 and ARGV[4] == '' then
  local call, peek, find = redis.call, redis.pcall, string.find
  local base, queue = KEYS[1], ARGV[2]
  local jobs, members, wakeups = base .. ':job:', base .. ':queue:' .. queue, base .. ':wake:' .. queue
  local events, backlog = base .. ':events', base .. ':backlog'
  local namespace = call('HMGET', base, 'layout', 'patterns')
  local plain = namespace[1] == '1' and not namespace[2] and #queue <= 128 and find(queue, '^[%w_.:-]+$')
    and queue ~= '.' and queue ~= '..'
    and call('HGET', base .. ':queues', queue) == ''
  local ids, new, bytes = {}, {}, 0
  for i = 1, #ARGV, 5 do
    local id, task, payload = ARGV[i], ARGV[i + 2], ARGV[i + 4]
    plain = plain and ARGV[i + 1] == queue and ARGV[i + 3] == '' and #payload <= 1024
      and #id <= 64 and #task <= 128 and find(id, '^[%w_.:-]+$') and find(task, '^[%w_.:-]+$')
      and id ~= '.' and id ~= '..' and task ~= '.' and task ~= '..'
      and not new[id] and call('EXISTS', jobs .. id) == 0
    if not plain then break end
    ids[#ids + 1], new[id], bytes = id, true, bytes + #payload
  end
  if plain then
    -- These raise for a key of a wrong type before the first write
    call('ZCARD', members)
    call('XLEN', events)
    call('HLEN', backlog)
    local woken, time = call('LLEN', wakeups), call('TIME')
    local n = string.format('%d', #ids)
    local seq = peek('HINCRBY', base, 'seq', n)
    if type(seq) == 'number' then
      local stamp = time[1] .. string.sub('00000' .. time[2], -6, -4)
      local first, places, answers = 1759218604441600 + seq - #ids, {}, {}
      for i, id in ipairs(ids) do
        call('HSET', jobs .. id, 'state', 'queued', 'spec', queue .. ' ' .. ARGV[5 * i - 2] .. ' ' .. stamp .. '\n' .. ARGV[5 * i])
        places[2 * i - 1], places[2 * i], answers[i] = string.format('%d', first + i), id, 'created'
      end
      call('ZADD', members, unpack(places))
      for i = 1, #ids, 10 do
        call('XADD', events, 'MAXLEN', '~', '10000', '*', 'jobs', table.concat(ids, ' ', i, math.min(i + 9, #ids)),
          'state', 'queued', 'code', 'submitted')
      end
      local has = peek('HINCRBY', backlog, queue .. ' jobs', n)
      if type(has) ~= 'number' then
        has = 1
        call('HSET', backlog, queue .. ' jobs', n)
      end
      if has <= 0 then
        call('HDEL', backlog, queue .. ' jobs', queue .. ' bytes', queue .. ' running')
      elseif bytes > 0 and type(peek('HINCRBY', backlog, queue .. ' bytes', tostring(bytes))) ~= 'number' then
        call('HSET', backlog, queue .. ' bytes', bytes)
      end
      if woken == 0 then call('LPUSH', wakeups, '1') end
      if type(peek('HINCRBY', base, 'submitted', n)) ~= 'number' then call('HSET', base, 'submitted', n) end
      return answers
    end
  end
end
-- luacheck: pop
