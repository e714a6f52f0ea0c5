-- lib/places: the audit of a queue with flow control, by its claims. What somebody deleted or added by hand is found and
-- mended: places without a lease, leases without a place, groups without a turn. It needs base, queue, flow and turns.
-- luacheck: push ignore 211
local PASS, LONG = 25000, 50000             -- ms in which an audit looks at all that runs, and at all that waits
local PART, AT_LEAST = 300, 50                 -- entries in a part, about; and of each of four kinds, if there are so many
local MENDED = 50                           -- what a part mends at most
local PAUSE, HASTE = 1000, 50               -- ms between two parts, and at least
local BATCH = 20                            -- a claim that took more jobs makes a short part
local MEMBERS = 8                           -- members of a group's places that a part looks at

-- A part of the audit, if it is time for one. Large queues need more parts: `pace` is when this worker should claim again.
local function look_over(f, taken)
  local size_of, list, number = f.size_of, f.list, f.number
  local due, before, cursors = string.match(f.cursors, '^(%d+) (%d+) (%d+ %d+ %d+ %d+)$')
  due, before = tonumber(due or 0), tonumber(before or PAUSE)
  if now < due and due - now <= PAUSE then return end
  local since = math.max(before, math.min(now - due + before, 2 * PAUSE))
  local places, running = size_of(peek('HLEN', f.places)), tonumber(peek('HGET', key('backlog'), f.name .. ' running') or 0)
  -- The running jobs of all queues: slowly if the queue has as many places as running jobs.
  local kinds = {{places, PASS}, {places == running and AT_LEAST or size_of(peek('ZCARD', key('running'))), PASS},
    {size_of(peek('ZCARD', f.all)), LONG}, {size_of(peek('ZCARD', f.full)), LONG}}
  local most, mended, speed, left = taken > BATCH and AT_LEAST or PART, 0, 0, false
  for _, kind in ipairs(kinds) do speed = speed + (kind[1] < math.huge and kind[1] / kind[2] or 0) end
  since = math.min(since, most / speed)
  local cursor, onward = string.gmatch(cursors or '0 0 0 0', '%d+'), {}

  -- Give `check` the next entries of a kind, which `page` reads. If it returns nothing, it had to stop: they are looked at again.
  local function walk(page, check)
    local at, kind = cursor(), kinds[#onward + 1]
    local names, found, next_at = page(at, math.min(PART, math.max(AT_LEAST, math.ceil(kind[1] / kind[2] * since))))
    if #names > 0 and not check(names, found) then next_at, left = at, true end
    onward[#onward + 1] = next_at or '0'
  end
  local function scanned(page)
    local names, found = {}, page[2] or {}
    for i = 1, #found, 2 do names[#names + 1] = found[i] end
    return names, found, page[1]
  end
  local function scan(set)
    return function(at, n) return scanned(list(peek('ZSCAN', set, at, 'COUNT', n))) end
  end
  -- Is there room in this part to mend one more?
  local function mend() mended = mended + 1 return mended <= MENDED end

  walk(function(at, n) return scanned(list(peek('HSCAN', f.places, at, 'COUNT', n))) end, function(_, found)
    for i = 1, #found, 2 do
      local id, group = found[i], found[i + 1]
      if not f:runs(id) then
        if not mend() then return end
        f:give_back(id, group)
      elseif group ~= '' and peek('SISMEMBER', f.places .. '|' .. group, id) == 0 then
        if not mend() then return end
        peek('SADD', f.places .. '|' .. group, id)
      end
    end
    return true
  end)
  walk(scan(key('running')), function(ids) return f:adopt(ids, mend) end)
  f:settle(f:group(''))
  walk(function(at, n)
    local ids = list(peek('ZRANGE', f.all, '(' .. at, '+inf', 'BYSCORE', 'LIMIT', 0, n))
    local score = #ids == n and number(peek('ZSCORE', f.all, ids[n]))
    return ids, ids, score and digits(score)
  end, function(ids)
    local groups, seen = {}, {}
    for _, id in ipairs(ids) do
      local spec = peek('HGET', key('job:', id), 'spec')
      local group = type(spec) == 'string' and string.match(spec, '^[^\n]- group=(%S+)')
      if group and not seen[group] then groups[#groups + 1], seen[group] = group, true end
    end
    if #groups == 0 then return true end
    local turns, rests = list(peek('ZMSCORE', f.turns, unpack(groups))), list(peek('ZMSCORE', f.full, unpack(groups)))
    for i, group in ipairs(groups) do
      if not turns[i] and not rests[i] then
        if not mend() then return end
        f:settle(f:group(group))
      end
    end
    return true
  end)
  -- A group rests for its rate (then its token comes), or because it has as many places as it may.
  walk(scan(f.full), function(groups)
    local tokens = list(peek('ZMSCORE', f.tokens, unpack(groups)))
    local own = list(peek('HMGET', key('groups:', f.name), unpack(groups)))
    local usual = setting(get_queue(f.name).settings, 'group_concurrency')
    for i, group in ipairs(groups) do
      local set = f.places .. '|' .. group
      local ids = not tokens[i] and list(peek('SRANDMEMBER', set, MEMBERS)) or {}
      local held = #ids < MEMBERS and #ids or size_of(peek('SCARD', set))
      local limit = tonumber(own[i] and setting(' ' .. own[i], 'concurrency') or usual or nil)
      local holders = #ids > 0 and list(peek('HMGET', f.places, unpack(ids))) or {}
      for j, id in ipairs(ids) do
        local runs = holders[j] ~= group and f:runs(id)
        if holders[j] ~= group and not (runs and not holders[j]) then
          if not mend() then return end
          held = held - 1
          if runs then peek('SREM', set, id) else f:give_back(id, group) end
        end
      end
      if not tokens[i] and held < (limit or math.huge) then
        if not mend() then return end
        f:settle(f:group(group))
      end
    end
    return true
  end)

  local wait = left and HASTE or math.max(HASTE, math.min(PAUSE, math.floor(most / speed)))
  if wait < PAUSE then f.pace = wait end
  f.cursors = table.concat({digits(now + wait), digits(wait), unpack(onward)}, ' ')
  peek('HSET', f.memory, 'cursors', f.cursors)
end
-- luacheck: pop
