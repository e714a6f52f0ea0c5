-- lib/prune: delete finished jobs and empty queues that are past their retention, or too many. It needs base,
-- queue and lifecycle.
-- luacheck: push ignore 211
local CLASSES = '5 20 100 500 1000 2000 5000 15000 60000 300000 900000 3600000 inf ms'

-- The names of a queue's counts.
local function words_counted()
  local words = {'dead jobs', 'cancelled jobs'}
  for _, what in ipairs({'wait ', 'completed ', 'failed '}) do
    for class in string.gmatch(CLASSES, '%S+') do words[#words + 1] = what .. class end
  end
  return words
end

-- When more than KEEP_QUEUES queues are known, delete some that are empty and have no settings. Their counts
-- are added to those of `*`. Returns how many queues were deleted.
local function forget_queues(limit)
  local known, counts, sums, gone = key('queues'), key('counts'), {}, 0
  if call('HLEN', known) <= KEEP_QUEUES then return 0 end
  local words = words_counted()
  local page = peek('HSCAN', known, call('HGET', base, 'swept') or '0', 'COUNT', math.min(limit, 50))
  local cursor, found = page[1] or '0', page[2] or {}      -- an invalid cursor starts again
  for i = 1, #found, 2 do
    local name = found[i]
    local plain = found[i + 1] == '' or found[i + 1] == '0 submit flow=1'
    local idle = plain and call('HEXISTS', key('backlog'), name .. ' jobs') == 0
    if idle and peek('ZCARD', key('queue:' .. name)) == 0 and peek('ZCARD', key('grouped:' .. name)) == 0 then
      local counted = call('HEXISTS', counts, name .. ' wait ms')
      if counted + call('HEXISTS', counts, name .. ' cancelled jobs') > 0 then
        local fields, there = {}, {}
        for j, word in ipairs(words) do fields[j] = name .. ' ' .. word end
        for j, n in ipairs(call('HMGET', counts, unpack(fields))) do
          if n then
            there[#there + 1], sums[words[j]] = fields[j], (sums[words[j]] or 0) + (tonumber(n) or 0)
          end
        end
        call('HDEL', counts, unpack(there))
      end
      call('DEL', key('wake:' .. name), key('flow:' .. name), key('turns:' .. name), key('full:' .. name), key('tokens:' .. name))
      gone = gone + call('HDEL', known, name)
    end
  end
  call('HSET', base, 'swept', cursor)
  for word, n in pairs(sums) do if n > 0 then add(counts, '* ' .. word, n) end end
  return gone
end

-- Delete at most `limit` finished jobs that are past their retention, or too many, and up to `ahead` more of those that
-- are too many. Returns how many jobs, and how many queues.
local function forget(limit, ahead)
  local gone = 0
  for _, state in ipairs({'completed', 'dead', 'cancelled'}) do
    local left = math.max(0, limit - gone)
    local old = overdue(state, left)
    gone = gone + (#old > 0 and delete_jobs(state, old)
      or delete_jobs(state, excess(state, 0, left, ahead), true))
  end
  return gone, forget_queues(limit)
end
-- luacheck: pop
