-- lib/tags: an index of the jobs of each tag, for lists. It is a hint: a job's header has its tags. What cannot be read
-- or written (a key of a wrong type, a right that the user lacks) is passed over. It needs base.
-- luacheck: push ignore 211
local TAGGED = 10000                        -- jobs kept in an index: the newest
local TAGS = 10000                          -- indexes kept: those of the tags that were used last
local CHECKED = 1                           -- jobs that a submit looks for at each of two places of an index
local CHECKED_MORE = 200                    -- and one more for each new job, in all indexes together
local TIDIED = 20                           -- indexes of which one submit does that, in turns
local SWEPT = 5                             -- tags that a prune takes from each of two places
local SURPLUS = 1000                        -- jobs above the number kept that are removed at a time
local OLDER = '*'                           -- member of an index, its score: up to this ms the index may lack jobs; of `tags`: up
                                            -- to this ms, jobs of tags without an index

local tagged, kinds = {}, 0                 -- tag → score and id of its new jobs, in turns; how many tags
local function note_tags(job)
  for tag in string.gmatch(job.rules.tags or '', '[^,]+') do
    local members = tagged[tag] or {}
    if #members == 0 then kinds = kinds + 1 end
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
    if id ~= OLDER and peek('EXISTS', key('job:', id)) == 0 then gone[#gone + 1] = id end
  end
  local surplus = math.min(length - TAGGED, SURPLUS)
  if surplus > 0 then
    for _, id in ipairs(peek('ZRANGE', index, 0, surplus - 1)) do gone[#gone + 1] = id end
  end
  if #gone > 0 then peek('ZREM', index, unpack(gone)) end
  if surplus > 0 then peek('ZADD', index, peek('ZRANGE', index, 0, 0, 'WITHSCORES')[2] or now, OLDER) end
  return length
end

-- Write the jobs that were noted to the indexes. If there are too many indexes, delete those of the tags that were used
-- least recently.
local function index_tags()
  if kinds == 0 then return end
  local tags, used, n = key('tags'), {}, 0
  local older = peek('ZSCORE', tags, OLDER)
  older = type(older) == 'string' and older or nil
  local turns, more = math.ceil(kinds / TIDIED), math.floor(CHECKED_MORE / math.min(kinds, TIDIED))
  for tag, members in pairs(tagged) do
    local new = #members / 2
    if older and not peek('ZSCORE', tags, tag) then members[#members + 1], members[#members + 2] = older, OLDER end
    peek('ZADD', key('tag:' .. tag), unpack(members))
    n = n + 1
    used[#used + 1], used[#used + 2] = stamp, tag
    if (n + time[2]) % turns == 0 then tidy(tag, CHECKED + math.min(more, new)) end
  end
  if type(peek('ZADD', tags, unpack(used))) ~= 'number' then return end
  local first = older and 1 or 0
  local surplus = math.min(peek('ZCARD', tags) - first - TAGS, n + 1)
  if surplus <= 0 then return end
  local old, names = peek('ZRANGE', tags, first, first + surplus - 1, 'WITHSCORES'), {}
  for i = 1, #old, 2 do
    names[#names + 1] = old[i]
    peek('UNLINK', key('tag:' .. old[i]))
  end
  peek('ZREM', tags, unpack(names))
  peek('ZADD', tags, old[#old], OLDER)
end

-- Remove jobs that no longer exist from the indexes of a few tags, about `limit` from each.
local function sweep_tags(limit)
  local length = peek('ZCARD', key('tags'))
  if type(length) ~= 'number' or length == 0 then return end
  for _, tag in ipairs(some_members(key('tags'), length, SWEPT)) do
    if tag ~= OLDER and tidy(tag, math.ceil(limit / 2)) == 0 then peek('ZREM', key('tags'), tag) end
  end
end
-- luacheck: pop
