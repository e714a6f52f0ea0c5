-- lib/tags: an index of the jobs of each tag, for lists. It is a hint: a job's header has its tags. What cannot be read
-- or written (a key of a wrong type, a right that the user lacks) is passed over. It needs base.
-- luacheck: push ignore 211
local TAGGED = 10000                        -- jobs kept in an index: the newest
local TAGS = 10000                          -- indexes kept: those of the tags that were used last
local CHECKED = 1                           -- jobs that a submit looks for at each of two places of an index
local CHECKED_MORE = 200                    -- and one more for each new job, in all indexes together
local TIDIED = 20                           -- indexes of which one submit does that, in turns
local SWEPT = 5                             -- tags that a prune takes from each of two places
local NEW = 100                             -- tags that get an index in one call
local SURPLUS = 300                         -- jobs above the number kept that are removed at a time
local OLDER = '*'                           -- member of an index, its score: up to this ms the index may lack jobs; of `tags`: up
                                            -- to this ms, jobs of tags without an index

local tagged = {}                           -- tag → score and id of its new jobs, in turns
local function note_tags(job)
  for tag in string.gmatch(job.rules.tags or '', '[^,]+') do
    local members = tagged[tag] or {}
    tagged[tag], members[#members + 1], members[#members + 2] = members, stamp, job.id
  end
end

-- Up to n members of a sorted set, from an index on.
local function members_from(set, start, n)
  local found = {}
  for _, member in ipairs(peek('ZRANGE', set, start, start + n - 1)) do
    if member ~= OLDER then found[#found + 1] = member end
  end
  return found
end
local function drawn_place(length) return (time[2] * 40503 + length * 7919) % math.max(1, length) end

-- Add those of these jobs that no longer exist to `gone`. Many are looked for at once, and one by one if only some exist.
local function add_missing(ids, gone)
  for first = 1, #ids, 25 do
    local names, last = {}, math.min(#ids, first + 24)
    for i = first, last do names[#names + 1] = key('job:', ids[i]) end
    local there = peek('EXISTS', unpack(names))
    if there ~= #names then
      for i, name in ipairs(names) do
        if there == 0 or peek('EXISTS', name) == 0 then gone[#gone + 1] = ids[first + i - 1] end
      end
    end
  end
end

-- Remove jobs that no longer exist from the index of a tag, 2n at most, and the oldest above the number kept. Returns
-- how many jobs it had; nil for a key of a wrong type.
local function tidy(tag, n)
  local index, gone = key('tag:' .. tag), {}
  local length = peek('ZCARD', index)
  if type(length) ~= 'number' then return nil end
  add_missing(members_from(index, 0, n), gone)
  add_missing(members_from(index, drawn_place(length), n), gone)
  local surplus = math.min(length - TAGGED, SURPLUS)
  if surplus > 0 then
    for _, id in ipairs(members_from(index, 0, surplus)) do gone[#gone + 1] = id end
  end
  if #gone > 0 then peek('ZREM', index, unpack(gone)) end
  if surplus > 0 then peek('ZADD', index, 'GT', peek('ZRANGE', index, 0, 0, 'WITHSCORES')[2] or now, OLDER) end
  return length
end

-- Delete the indexes of the tags that were used least recently, if there are too many.
local function forget_tags(tags, surplus)
  local old = surplus > 0 and members_from(tags, 0, surplus) or {}
  if #old == 0 then return end
  peek('ZADD', tags, 'GT', peek('ZSCORE', tags, old[#old]) or now, OLDER)
  for _, tag in ipairs(old) do peek('UNLINK', key('tag:' .. tag)) end
  peek('ZREM', tags, unpack(old))
end

-- Write the jobs that were noted to the indexes.
local function index_tags()
  local names, tags, used, new = {}, key('tags'), {}, 0
  for tag in pairs(tagged) do names[#names + 1] = tag end
  if #names == 0 then return end
  local older, known = peek('ZSCORE', tags, OLDER), peek('ZMSCORE', tags, unpack(names))
  local turns, more = math.ceil(#names / TIDIED), math.floor(CHECKED_MORE / math.min(#names, TIDIED))
  for i, tag in ipairs(names) do
    new = new + (known[i] and 0 or 1)
    if known[i] or new <= NEW then
      local members = tagged[tag]
      local n = CHECKED + math.min(more, #members / 2)
      if not known[i] and type(older) == 'string' then members[#members + 1], members[#members + 2] = older, OLDER end
      peek('ZADD', key('tag:' .. tag), unpack(members))
      used[#used + 1], used[#used + 2] = stamp, tag
      if (i + time[2]) % turns == 0 then tidy(tag, n) end
    end
  end
  if new > NEW then used[#used + 1], used[#used + 2] = stamp, OLDER end
  if type(peek('ZADD', tags, unpack(used))) ~= 'number' then return end
  forget_tags(tags, math.min(peek('ZCARD', tags) - TAGS - 1, NEW + 1))
end

-- Remove jobs that no longer exist from the indexes of a few tags, about `limit` from each.
local function sweep_tags(limit)
  local length = peek('ZCARD', key('tags'))
  if type(length) ~= 'number' or length == 0 then return end
  local tags = members_from(key('tags'), 0, SWEPT)
  for _, tag in ipairs(members_from(key('tags'), drawn_place(length), SWEPT)) do tags[#tags + 1] = tag end
  for _, tag in ipairs(tags) do
    if tidy(tag, math.ceil(limit / 2)) == 0 then peek('ZREM', key('tags'), tag) end
  end
end
-- luacheck: pop
