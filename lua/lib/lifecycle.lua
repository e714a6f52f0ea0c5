-- lib/lifecycle: how a job moves from one state to the next, up to its deletion. It needs base, queue, flow, edges,
-- deaths and surplus.
-- luacheck: push ignore 211
needs('PUBLISH', key('ended'), '')

-- The ms before the next try, after n tries: first·factor^(n-1), at most the cap. Up to half of it is jitter,
-- computed from token and id.
local function backoff(job, n)
  local first, factor, cap = string.match(job.rules.backoff, '^(%d+):([%d.]+):(%d+)$')
  -- In this order, as 0 * inf is NaN
  local delay, dice = math.min(tonumber(cap), 1e14, first * factor ^ (n - 1)), 0
  local bits = string.sub(job.token or '', -4) .. string.sub(job.id, -4)
  for i = 1, #bits do dice = (dice + string.byte(bits, i)) * 40503 % 65536 end
  return math.floor(delay / 2 + delay / 2 * dice / 65536)
end

-- The newer job of the key that was stored while this one ran, until it has ended; nil if there is none.
local function successor(job)
  local holder = job.rules.key and peek('GET', key('key:' .. job.rules.queue .. '|' .. job.rules.key))
  local newer = type(holder) == 'string' and load(holder) or {}
  return newer.state and newer.rules.after == job.id and newer or nil
end

-- A job has ended, and is kept until then: let its stream expire, publish its id if it is watched, release its key, or return it
-- to the older job that still runs. Make the newer job of its key due, and its schedule if that waits for this job. A lock or schedule of a wrong type does not name this job.
local function on_end(job, move, until_)
  local rules = job.rules
  if job.logged == '2' then peek('PEXPIREAT', key('stream:', job.id), digits(until_)) end
  if job.watched then call('PUBLISH', key('ended'), job.id) end
  if is_linked(job) then edges().on_change(job, move) end
  local lock, older = rules.key and key('key:' .. rules.queue .. '|' .. rules.key), load(rules.after)
  local newer = lock and successor(job)
  if newer then
    call('ZADD', key('scheduled'), 'XX', math.max(now, newer.rules.at or 0), newer.id)
    wake(rules.queue)
  elseif lock and peek('GET', lock) == job.id and (not rules.window or peek('PTTL', lock) == -1) then
    call('DEL', lock)
    if older.state == 'running' then call('SET', lock, older.id) end
  end
  local waits = rules.schedule and peek('HGET', key('schedule:' .. rules.schedule), 'held') == job.id
  if waits then peek('ZADD', key('schedules'), 'XX', stamp, rules.schedule) end
end

local first_due                             -- the earliest score of `scheduled`, once it was read

-- The only way into a state: set fields, add the job to the structure, append the event, wake a worker.
local function place(job, state, score, code, ...)
  local queue, hash = job.rules.queue, job.hash
  if state == 'scheduled' and not first_due then
    first_due = tonumber(call('ZRANGE', key(state), 0, 0, 'WITHSCORES')[2] or math.huge)
  end
  if WENT_WRONG[state] then make_room(state) end
  job.state = state
  call('HSET', hash, 'state', state, ...)
  local line = state == 'queued' and flow(queue, job.rules.group)
  if not line then call('ZADD', key(state == 'queued' and 'queue:' .. queue or state), score, job.id) end
  event({job.id}, state, code)
  if line then return line:enter(job, score) end
  if state == 'queued' then return wake(queue) end
  if state == 'scheduled' then
    if score < first_due then
      first_due = score
      wake(queue)
    end
    return
  end
  call('HSET', hash, 'finished_at', stamp)
  count(state, 1)
  add_change(queue, state, 1)
  backlog(queue, -1, -size(job))
  on_end(job, place, score)
  if state == 'dead' then report_death(job, code, place) end
end

-- The value of attempt:<n>: a line of words, a line of message, then opaque detail.
local function story(job, code, message, detail)
  local line = job.claimed_at .. ' ' .. job.worker .. ' ' .. stamp .. ' ' .. code
  if not message then return line end
  return line .. '\n' .. string.gsub(string.sub(message, 1, 1024), '[\r\n]+', ' ') .. '\n' .. string.sub(detail, 1, 4096)
end

-- The code and the first 200 bytes of an attempt's message, without half a character: lists show them.
local function last_error(ending)
  local words = string.gsub(string.sub((ending.message or '') .. ' ', 1, 201), '[^\128-\191][\128-\191]*$', '')
  return ending.code .. ' ' .. string.gsub(words, '[\r\n]+', ' ')
end

-- An attempt is over: delete its lease, record the attempt (the first and last five are kept), move the job
-- to its next state.
local function conclude(job, ending, state, score)
  local hash, n = job.hash, job.attempt
  local answer = state == 'scheduled' and state .. ' ' .. string.format('%.0f', score) or state
  call('ZREM', key('running'), job.id)
  add_change(job.rules.queue, 'running', -1)
  return_place(job)
  call('HDEL', hash, 'worker', 'claimed_at', 'heartbeat_at', 'rank', 'progress', 'cancel_requested_at', 'held', 'ready_at')
  if n - 5 > 5 then call('HDEL', hash, 'attempt:' .. n - 5) end
  if job.logged then call('HDEL', hash, 'log:' .. n - 5) end
  if ending.code ~= 'released' and ending.code ~= 'suspended' or state == 'dead' then call('HSET', hash, 'error', last_error(ending)) end
  place(job, state, score, ending.code, 'ended', ending.verb .. ' ' .. answer, 'tries_left', job.tries_left,
    'streak', ending.streak or '', 'attempt:' .. n, story(job, ending.code, ending.message, ending.detail))
  job.ended = ending.verb .. ' ' .. answer
  return answer
end

-- Until when a dead or cancelled job is kept: 14 days, or its retention if that is longer.
local function kept_until(job) return now + math.max(KEEP_DEAD, job.rules.retention) end

-- An attempt failed: try again after a delay, or end the job when a cancel was requested, no tries are left or the ending is
-- final, or a newer job of its key waits behind it.
local function try_again(job, ending, delay)
  if job.cancel_requested_at then return conclude(job, ending, 'cancelled', kept_until(job)) end
  if ending.final or tonumber(job.tries_left) <= 0 then return conclude(job, ending, 'dead', kept_until(job)) end
  if successor(job) then return conclude(job, ending, 'cancelled', kept_until(job)) end
  if delay == 0 then
    return conclude(job, ending, 'queued', job.rank or rank(job.rules.priority, next_seq(1)))
  end
  return conclude(job, ending, 'scheduled', now + (delay or backoff(job, job.rules.tries - job.tries_left)))
end

-- How many attempts in a row, including this one, ended with `code`.
local function in_a_row(job, code)
  local before, n = string.match(job.streak or '', '^(%S+) (%d+)$')
  return before == code and n + 1 or 1
end

-- A lease ended and its holder reported no outcome. The first time in a row the job returns to its old place,
-- later, and after a timeout, it waits for a backoff.
local function lose_lease(job, verb, code, message)
  local n = in_a_row(job, 'lease_expired')
  local ending = {verb = verb, code = code, message = message, detail = '', streak = 'lease_expired ' .. n}
  return try_again(job, ending, n == 1 and code ~= 'timed_out' and 0 or nil)
end

-- At most `limit` ids of a structure whose score is not in the future.
local function overdue(structure, limit)
  return sizes[structure] > 0 and call('ZRANGE', key(structure), '-inf', stamp, 'BYSCORE', 'LIMIT', 0, limit)
    or {}
end
-- luacheck: pop
