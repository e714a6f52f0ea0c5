-- lib/patterns: which patterns of queue names workers wait for. It needs base and queue.
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
-- luacheck: pop
