-- lib/surplus: which finished jobs are deleted when more of a state are stored than are kept. It needs base and queue.
-- luacheck: push ignore 211
-- Delete finished jobs of a state. Those that are deleted early, before their retention has passed, are counted.
local function delete_jobs(state, ids, early)
  if #ids == 0 then return 0 end
  for _, id in ipairs(ids) do
    call('DEL', key('job:', id))
    if early then call('DEL', key('stream:', id)) end
  end
  call('ZREM', key(state), unpack(ids))
  if early and state == 'completed' then
    count('forgotten_results', #ids)
  elseif early then
    count('forgotten', #ids)
  end
  return #ids
end

local DRAWS = 9                             -- places in the structure; from each the same number of jobs
-- Look at jobs drawn at random, `run` in a row from each ninth of a structure. Returns the queue of more than half of
-- them, and the earliest end of those behind its first `front` jobs.
local function draw(state, run, front, look_at)
  local drawn, seen, shares, major, earliest, all = 0, {}, {}, nil, math.huge, sizes[state]
  for i = 1, DRAWS do
    local at = math.floor((i - 1 + (time[2] * 40503 + i * 7919) % 1000 / 1000) * math.max(1, all - run + 1) / DRAWS)
    for j, id in ipairs(call('ZRANGE', key(state), at, at + run - 1)) do
      local job = look_at(id, at + j)
      if not seen[id] then
        seen[id], drawn = true, drawn + 1
        if job.queue then shares[job.queue] = (shares[job.queue] or 0) + 1 end
        if job.at > front then earliest = math.min(earliest, job.ended) end
      end
    end
  end
  for queue, n in pairs(shares) do if 2 * n > drawn then major = queue end end
  return major, earliest
end

-- At most `limit` ids of finished jobs above the number kept, when `more` are added, and up to `ahead` (at most a
-- thousandth of that number) for those to come: about the oldest of the queue that has more than half of the jobs, else
-- of all. Candidates are those whose retention ends first, and some drawn at random.
local function excess(state, more, limit, ahead)
  local most = tonumber(setting(partition, state) or KEEP)
  local extra = math.min(limit, sizes[state] + more - most)
  if extra <= 0 then return {} end
  extra = extra + math.min(ahead or 0, math.floor(most / 1000))
  local found, known = {}, {}
  local function look_at(id, at)
    if known[id] then return known[id] end
    local spec, ended = unpack(peek('HMGET', key('job:', id), 'spec', 'finished_at'))
    local queue = string.match(spec or '', '^%S+')
    known[id] = {id = id, at = at, queue = queue, ended = tonumber(whole_number(ended, 0))}
    found[#found + 1] = known[id]
    return known[id]
  end
  local front = call('ZRANGE', key(state), 0, extra - 1)
  local major, earliest = draw(state, 2, extra, look_at)
  local all_fit = true                      -- as a few of them show
  for i = 1, #front, math.ceil(extra / DRAWS) do
    local job = look_at(front[i], i)
    all_fit = all_fit and job.ended <= earliest and (not major or job.queue == major)
  end
  if all_fit then return front end
  for i, id in ipairs(front) do look_at(id, i) end
  major = draw(state, math.ceil((extra + DRAWS) / DRAWS), extra, look_at)
  table.sort(found, function(a, b)
    local first, second = a.queue == major, b.queue == major
    if first ~= second then return first end
    if a.ended ~= b.ended then return a.ended < b.ended end
    return a.at < b.at
  end)
  local old = {}
  for i = 1, math.min(extra, #found) do old[i] = found[i].id end
  return old
end

-- Before a job becomes dead or cancelled: delete others above the number kept, so that it holds without a prune.
local WENT_WRONG = {dead = true, cancelled = true}
local function make_room(state)
  sizes[state] = sizes[state] + 1 - delete_jobs(state, excess(state, 1, 2), true)
end
-- luacheck: pop
