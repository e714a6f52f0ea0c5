-- lib/tags: an index of the jobs of each tag, for lists. It is a hint: a job's header has its tags. What cannot be read
-- or written (a key of a wrong type, a right that the user lacks) is passed over. It needs base.
-- luacheck: push ignore 211
local TAGGED = 10000                        -- jobs kept in an index: the newest
local TAGS = 10000                          -- indexes kept: those of the tags that were used last
local CHECKED = 2                           -- jobs that a submit looks for at each of two places of an index
local TIDIED = 20                           -- indexes of which one submit does that
local SWEPT = 5                             -- tags that a prune takes from each of two places

local tagged = {}                           -- tag → score and id of its new jobs, in turns
local function note_tags(job)
  for tag in string.gmatch(job.rules.tags or '', '[^,]+') do
    local members = tagged[tag] or {}
    tagged[tag], members[#members + 1], members[#members + 2] = members, stamp, job.id
  end
end

-- The first n members of a sorted set, and n from a place that is drawn by the clock.
local function some_members(set, length, n)
  local drawn, found = (time[2] * 40503 + length * 7919) % math.max(1, length), peek('ZRANGE', set, 0, n - 1)
  for _, member in ipairs(peek('ZRANGE', set, drawn, drawn + n - 1)) do found[#found + 1] = member end
  return found
end

-- Remove jobs that no longer exist from the index of a tag, 2n at most, and the oldest above the number kept. Returns
-- how many jobs it had; nil for a key of a wrong type.
local function tidy(tag, n)
  local index, gone = key('tag:' .. tag), {}
  local length = peek('ZCARD', index)
  if type(length) ~= 'number' then return nil end
  for _, id in ipairs(some_members(index, length, n)) do
    if peek('EXISTS', key('job:', id)) == 0 then gone[#gone + 1] = id end
  end
  if length > TAGGED then
    for _, id in ipairs(peek('ZRANGE', index, 0, length - TAGGED - 1)) do gone[#gone + 1] = id end
  end
  if #gone > 0 then peek('ZREM', index, unpack(gone)) end
  return length
end

-- Write the jobs that were noted to the indexes. If there are too many indexes, delete those of the tags that were used
-- least recently.
local function index_tags()
  local tags, used, n = key('tags'), {}, 0
  for tag, members in pairs(tagged) do
    peek('ZADD', key('tag:' .. tag), unpack(members))
    n = n + 1
    used[#used + 1], used[#used + 2] = stamp, tag
    if n <= TIDIED then tidy(tag, CHECKED) end
  end
  if n == 0 or type(peek('ZADD', tags, unpack(used))) ~= 'number' then return end
  local surplus = math.min(peek('ZCARD', tags) - TAGS, n + 1)
  if surplus <= 0 then return end
  local old = peek('ZRANGE', tags, 0, surplus - 1)
  for _, tag in ipairs(old) do peek('DEL', key('tag:' .. tag)) end
  peek('ZREM', tags, unpack(old))
end

-- Remove jobs that no longer exist from the indexes of a few tags, about `limit` from each.
local function sweep_tags(limit)
  local length = peek('ZCARD', key('tags'))
  if type(length) ~= 'number' or length == 0 then return end
  for _, tag in ipairs(some_members(key('tags'), length, SWEPT)) do
    if tidy(tag, math.ceil(limit / 2)) == 0 then peek('ZREM', key('tags'), tag) end
  end
end
-- luacheck: pop
