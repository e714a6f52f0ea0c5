-- lib/claim: what only claim needs: the patterns for which workers wait, whether it may take jobs, its token, how earlier
-- attempts ended. It needs base, queue and flow.
-- luacheck: push ignore 211
local PATTERNS = 16                         -- patterns for which workers may wait at a time
local RENEW = 10000                         -- ms left of these, below which a claim renews it

-- Is this a pattern of queue names, `tenant-*` or `*`?
local function is_pattern(text)
  return #text <= 128 and string.find(text, '^[%w_.:-]*%*$')
end

-- The queues and the patterns among the arguments from `first` on, and whether all are valid.
local function names_and_patterns(first)
  local names, given, valid = {}, {}, true
  for i = first, #ARGV do
    if is_name(ARGV[i]) then
      names[#names + 1] = ARGV[i]
    else
      given[#given + 1], valid = ARGV[i], valid and is_pattern(ARGV[i])
    end
  end
  return names, given, valid
end

-- Keep patterns live.
local function renew_patterns(given)
  local ends, live, late = {}, {}, false
  for pattern, at in string.gmatch(patterns or '', '(%S+) (%d+)') do
    local left = tonumber(at) - now         -- more than LISTENS once the clock was set back
    if left > 0 and left <= LISTENS and #live < PATTERNS then
      live[#live + 1], ends[pattern] = pattern, at
    end
  end
  for _, pattern in ipairs(given) do
    if not ends[pattern] and #live < PATTERNS then live[#live + 1], ends[pattern] = pattern, '0' end
    if ends[pattern] and tonumber(ends[pattern]) < now + RENEW then
      ends[pattern], late = digits(now + LISTENS), true
    end
  end
  if not late then return end
  for i, pattern in ipairs(live) do live[i] = pattern .. ' ' .. ends[pattern] end
  patterns = table.concat(live, ' ')
  begin()
  call('HSET', base, 'patterns', patterns)
end

-- Does a claim id begin with a life that was reconciled?
local function is_barred(claim_id)
  for life, ends in string.gmatch(replaced or '', '(%S+) (%d+)') do
    if tonumber(ends) > now and string.sub(claim_id, 1, #life + 1) == life .. '.' then return true end
  end
end

-- The number at the start of a token. It always grows, even when a failover lost writes.
local function new_fence()
  begin()
  local fence = math.max((tonumber(call('HGET', base, 'fence') or 0) or 0) + 1, time[1] * 1000000 + time[2])
  call('HSET', base, 'fence', string.format('%.0f', fence))
  return string.format('%.0f', fence)
end

-- Wake the next worker for each queue in which a claim left jobs that may start. Where it left none, delete the
-- wake-ups: they would wake workers for nothing.
local function wake_next(name, took)
  local line = flow(name)
  if line or took then
    local at = line and line:next_at()
    if at and at <= now or not line and call('ZCARD', key('queue:' .. name)) > 0 then
      wake(name)
    else
      if get_queue(name).wakeups > 0 then call('DEL', key('wake:' .. name)) end
      if patterns then for_patterns(name, function(list) peek('LREM', list, 0, name) end) end
    end
  end
end

-- How an earlier attempt ended, as a claim's reply has it.
local function history(id, n, tries_left)
  local last, streak, kept = unpack(call('HMGET', key('job:', id), 'attempt:' .. n, 'streak', 'checkpoint'))
  local lost = string.find(streak or '', '^lease_expired ') and ' lost' or ''
  return (last and string.match(last, '^%S+ %S+ %S+ (%S+)') or '') .. ' ' .. tries_left .. lost
    .. (kept and '\n' .. kept or '')
end

-- Append one job to a claim's reply; returns its bytes.
local function add_lease(reply, id, attempt, expires, spec, tries_left)
  local payload = not string.find(spec, '\n', 1, true) and call('HGET', key('job:', id), 'payload') or ''
  local before = attempt > 1 and history(id, attempt - 1, tries_left) or ''
  local i = #reply
  reply[i + 1], reply[i + 2], reply[i + 3] = id, attempt, expires
  reply[i + 4], reply[i + 5], reply[i + 6] = spec, payload, before
  return #spec + #payload + #before
end
-- luacheck: pop
