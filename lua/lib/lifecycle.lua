-- lib/lifecycle: how a job moves from one state to the next, and is forgotten in the end. It stands on base.lua and queue.lua.
-- luacheck: push ignore 211
needs('PUBLISH', key('ended'), '')

-- The number at the head of a token: it grows, even over writes that a failover lost.
local function new_fence()
  begin()
  local fence = math.max((tonumber(call('HGET', base, 'fence') or 0) or 0) + 1, time[1] * 1000000 + time[2])
  call('HSET', base, 'fence', string.format('%.0f', fence))
  return string.format('%.0f', fence)
end

-- ms before the next try, after n of them: first·factor^(n-1), capped; half is jitter, drawn from token and id.
local function backoff(job, n)
  local first, factor, cap = string.match(job.rules.backoff, '^(%d+):([%d.]+):(%d+)$')
  local delay, dice = math.min(tonumber(cap), 1e14, first * factor ^ (n - 1)), 0    -- in this order: 0 * inf is no number
  local bits = string.sub(job.token or '', -4) .. string.sub(job.id, -4)
  for i = 1, #bits do dice = (dice + string.byte(bits, i)) * 40503 % 65536 end
  return math.floor(delay / 2 + delay / 2 * dice / 65536)
end

-- A job has ended: tell its waiters, let go of its key, and of its schedule's next occurrence if that waits for it. (What else may lie
-- there does not name this job.)
local function ended(job)
  local rules = job.rules
  if job.watched then call('PUBLISH', key('ended'), job.id) end
  local lock = rules.key and not rules.window and key('key:' .. rules.queue .. '|' .. rules.key)
  if lock and peek('GET', lock) == job.id then call('DEL', lock) end
  local waits = rules.schedule and peek('HGET', key('schedule:' .. rules.schedule), 'held') == job.id
  if waits then peek('ZADD', key('schedules'), 'XX', stamp, rules.schedule) end
end

-- Forget finished jobs of a state. Those that went wrong, and whose time had not come, are counted.
local function drop(state, ids, early)
  if #ids == 0 then return 0 end
  for _, id in ipairs(ids) do call('DEL', key('job:', id)) end
  call('ZREM', key(state), unpack(ids))
  if early and state ~= 'completed' then count('forgotten', #ids) end
  return #ids
end

-- At most `limit` ids of finished jobs that are too many, when `more` come: those whose time would come first.
local function surplus(state, more, limit)
  local extra = math.min(limit, sizes[state] + more - tonumber(setting(partition, state) or KEEP))
  return extra > 0 and call('ZRANGE', key(state), 0, extra - 1) or {}
end

-- A job goes wrong for good: no more of these are kept than may be, whether or not somebody prunes. It is not one of those that go.
local WENT_WRONG = {dead = true, cancelled = true}
local function make_room(state) sizes[state] = sizes[state] + 1 - drop(state, surplus(state, 1, 2), true) end

local first_due                             -- the head of `scheduled`, once a script has looked

-- The only way into a state: the field (and others with it), the structure, and whoever must hear of it.
local function place(job, state, score, code, ...)
  local queue, hash = job.rules.queue, job.hash
  if state == 'scheduled' then first_due = first_due or tonumber(call('ZRANGE', key(state), 0, 0, 'WITHSCORES')[2] or math.huge) end
  if WENT_WRONG[state] then make_room(state) end
  job.state = state
  call('HSET', hash, 'state', state, ...)
  call('ZADD', key(state == 'queued' and 'queue:' .. queue or state), score, job.id)
  event({job.id}, state, code)
  if state == 'queued' then return wake(queue) end
  if state == 'scheduled' then
    if score < first_due then first_due = score return wake(queue) end
    return
  end
  call('HSET', hash, 'finished_at', stamp)
  count(state, 1)
  change(queue, state, 1)
  backlog(queue, -1, -size(job))
  ended(job)
end

-- attempt:<n> of the story: one line of words, then the message's line, then opaque detail. A long text is costly to make: once.
local function story(job, code, message, detail)
  local line = job.claimed_at .. ' ' .. job.worker .. ' ' .. stamp .. ' ' .. code
  if not message then return line end
  if #detail > 4096 then detail = string.sub(detail, 1, 4096) end
  return line .. '\n' .. string.gsub(string.sub(message, 1, 1024), '[\r\n]+', ' ') .. '\n' .. detail
end

-- An attempt is over: its lease goes, the story grows (first and last five are kept), the job moves on.
local function conclude(job, ending, state, score)
  local hash, n = job.hash, job.attempt
  local answer = state == 'scheduled' and state .. ' ' .. string.format('%.0f', score) or state
  call('ZREM', key('running'), job.id)
  change(job.rules.queue, 'running', -1)
  call('HDEL', hash, 'worker', 'claimed_at', 'heartbeat_at', 'rank', 'progress', 'cancel_requested_at')
  if n - 5 > 5 then call('HDEL', hash, 'attempt:' .. n - 5) end
  if job.logged then call('HDEL', hash, 'log:' .. n - 5) end
  place(job, state, score, ending.code, 'ended', ending.verb .. ' ' .. answer, 'tries_left', job.tries_left,
    'streak', ending.streak or '', 'attempt:' .. n, story(job, ending.code, ending.message, ending.detail))
  job.ended = ending.verb .. ' ' .. answer
  return answer
end

-- Until when a job that went wrong is kept: 14 days, or its retention if that is longer.
local function kept_until(job) return now + math.max(KEEP_DEAD, job.rules.retention) end

-- An attempt came to nothing: again after a delay, or the end when the tries are spent or a cancel was asked for.
local function try_again(job, ending, delay)
  if job.cancel_requested_at then return conclude(job, ending, 'cancelled', kept_until(job)) end
  if tonumber(job.tries_left) <= 0 then return conclude(job, ending, 'dead', kept_until(job)) end
  if delay == 0 then return conclude(job, ending, 'queued', job.rank or rank(job.rules.priority, next_seq(1))) end
  return conclude(job, ending, 'scheduled', now + (delay or backoff(job, job.rules.tries - job.tries_left)))
end

-- How many attempts in a row, this one included, ended by `code`.
local function in_a_row(job, code)
  local before, n = string.match(job.streak or '', '^(%S+) (%d+)$')
  return before == code and n + 1 or 1
end

-- A lease ended without a word of its holder: the first in a row goes back to its old place, later ones wait a while.
local function lose(job, verb, code, message)
  local n = in_a_row(job, 'lease_expired')
  local ending = {verb = verb, code = code, message = message, detail = '', streak = 'lease_expired ' .. n}
  return try_again(job, ending, n == 1 and 0 or nil)
end

-- The ids of a structure whose moment has come, at most `limit`.
local function overdue(structure, limit)
  return sizes[structure] > 0 and call('ZRANGE', key(structure), '-inf', stamp, 'BYSCORE', 'LIMIT', 0, limit) or {}
end

-- An operator's verb names the revision it saw: attempts plus operator's verbs accepted. Answers what to say at once,
-- a refusal or, to the same order sent again, its first answer; nil when the order may be carried out.
local function disordered(job, verb, revision, ...)
  if not job.state then return refusal('NOT_FOUND', 'no job ' .. tostring(job.id)) end
  local current = (job.attempt or 0) + (job.ops or 0)
  local asked, seen, answer = string.match(job.op or '', '^(%S+) (%S+) (%S+)$')
  if asked == verb and seen == revision and current == seen + 1 then return answer end
  if tostring(current) ~= revision then
    return refusal('CHANGED', 'job ' .. job.id .. ' is at revision ' .. current .. ', not ' .. tostring(revision) .. ': look again')
  end
  for _, state in ipairs({...}) do if job.state == state then return nil end end
  return refusal('WRONG_STATE', 'job ' .. job.id .. ' is ' .. job.state)
end

-- Note that an order was carried out, and what it was answered.
local function order(job, verb, revision, answer)
  call('HSET', job.hash, 'ops', (job.ops or 0) + 1, 'op', verb .. ' ' .. revision .. ' ' .. answer)
  return answer
end
-- luacheck: pop
