-- lib/prune: what is let go of when its time is over, or there is too much of it. It stands on base.lua, queue.lua and lifecycle.lua.
-- luacheck: push ignore 211
local CLASSES = '5 20 100 500 1000 2000 5000 15000 60000 300000 900000 3600000 inf ms'

-- What is counted of a queue.
local function words_counted()
  local words = {'dead jobs', 'cancelled jobs'}
  for _, what in ipairs({'wait ', 'completed ', 'failed '}) do
    for class in string.gmatch(CLASSES, '%S+') do words[#words + 1] = what .. class end
  end
  return words
end

-- Where very many queues are known, forget some that nobody has set and in which nothing is left: what was counted of them is
-- counted under `*` from then on. Answers how many.
local function forget_queues(limit)
  local known, counts, sums, gone = key('queues'), key('counts'), {}, 0
  if call('HLEN', known) <= KEEP_QUEUES then return 0 end
  local words = words_counted()
  local page = peek('HSCAN', known, call('HGET', base, 'swept') or '0', 'COUNT', math.min(limit, 50))
  for i = 1, page.err and 0 or #page[2], 2 do
    local name = page[2][i]
    local idle = page[2][i + 1] == '' and call('HEXISTS', key('backlog'), name .. ' jobs') == 0
    if idle and peek('ZCARD', key('queue:' .. name)) == 0 then
      if call('HEXISTS', counts, name .. ' wait ms') + call('HEXISTS', counts, name .. ' cancelled jobs') > 0 then
        local fields, there = {}, {}
        for j, word in ipairs(words) do fields[j] = name .. ' ' .. word end
        for j, n in ipairs(call('HMGET', counts, unpack(fields))) do
          if n then there[#there + 1], sums[words[j]] = fields[j], (sums[words[j]] or 0) + (tonumber(n) or 0) end
        end
        call('HDEL', counts, unpack(there))
      end
      call('DEL', key('wake:' .. name))
      gone = gone + call('HDEL', known, name)
    end
  end
  call('HSET', base, 'swept', page.err and '0' or page[1])
  for word, n in pairs(sums) do if n > 0 then add(counts, '* ' .. word, n) end end
  return gone
end

-- Forget at most `limit` finished jobs that are past their time, or too many. Answers how many, and how many queues went with them.
local function forget(limit)
  local gone = 0
  for _, state in ipairs({'completed', 'dead', 'cancelled'}) do
    local old = overdue(state, limit - gone)
    gone = gone + (#old > 0 and drop(state, old) or drop(state, surplus(state, 0, limit - gone), true))
  end
  return gone, forget_queues(limit)
end
-- luacheck: pop
