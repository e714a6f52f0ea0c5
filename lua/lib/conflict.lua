-- lib/conflict: a key with debounce or on_conflict. Its submit gives the waiting job of the key new arguments, or stores
-- a job that waits behind the running one: a key has at most one job that waits and one that runs. It needs base, queue,
-- flow and steps.
-- luacheck: push ignore 211
local REMEMBERED = 50                       -- ids of earlier submits that a waiting job knows
local ON_CONFLICT = {replace = true, cancel_running = true}
local pending = {}                          -- id → a job with a key, as this call will store it

-- Whether the job has such a rule, and the refusal if its rules do not fit together.
local function conflict_rule(rules)
  local debounce, how = rules.debounce, rules.on_conflict
  if not (debounce or how or rules.at_most) then return false end
  local word = debounce and 'debounce=' .. debounce or how and 'on_conflict=' .. how or 'at_most=' .. rules.at_most
  local wrong = rules.at_most and not debounce and 'at_most is the end of a debounce: give debounce, too'
    or not rules.key and 'give the key that it is for'
    or debounce and how and 'debounce replaces what waits: leave out on_conflict'
    or how and not ON_CONFLICT[how] and 'use replace or cancel_running'
    or rules.window and 'leave out window: the key is held until its job has ended'
    or debounce and (rules.at or rules.delay) and 'it sets the moment: leave out at and delay'
    or rules.at_most and tonumber(rules.at_most) < tonumber(debounce) and 'at_most must not be less than debounce'
  return true, wrong and 'INVALID rule ' .. word .. ': ' .. wrong
end

-- Has a job got its arguments from the submit of this id, or an earlier submit that it knows?
local function knows(job, id)
  local ids = job.joined or job.hash and peek('HGET', job.hash, 'joined')
  job.joined = type(ids) == 'string' and ids or ''
  return string.find(' ' .. job.joined .. ' ', ' ' .. id .. ' ', 1, true)
end

-- The header of the new job, or of the one that it replaces. That one keeps the moment of its first submit, and the digest,
-- which belongs to its id. If it was tried in the meantime (`tried` counts earlier attempts), the moment is now.
local function renew(job, old, after)
  local rules, tried = job.rules, old and old.attempt or '0'
  local since = old and (old.rules.tried or '0') == tried and old.rules.submitted_at or stamp
  if rules.debounce then job.due = math.min(now + rules.debounce, since + (rules.at_most or 1e14)) end
  job.due = math.min(job.due, 1e14 - 1)
  local words, digest = string.match(rules.header, '^%S+ %S+ %S+(.*)$'), old and old.rules.digest
  for _, name in ipairs({'onto', 'delay', 'at', 'after', 'replaced', 'tried', old and 'digest' or nil}) do
    words = string.gsub(words, ' ' .. name .. '=%S+', '')
  end
  if job.due > 0 then words = words .. ' at=' .. digits(job.due) end
  if after then words = words .. ' after=' .. after end
  if digest then words = words .. ' digest=' .. digest end
  if tried ~= '0' then words = words .. ' tried=' .. tried end
  if old then words = words .. ' replaced=' .. string.match(old.rules.replaced or '0', '^%d+') + 1 .. ':' .. stamp end
  job.after, job.rules = after, read_header(rules.queue .. ' ' .. rules.task .. ' ' .. since .. words)
end

-- A submit meets the holder of its key. Returns the answer if nothing is to be stored. Otherwise `job` is new, perhaps
-- behind a running one (`after`), or takes the place of a waiting one (`old`), and has `grows` bytes more than that.
local function meet(job, holder)
  local rules, own = job.rules, job.id
  job.ruled = true
  local old = pending[holder] or load(holder)
  local runs = old.state == 'running' and old or load(old.rules and old.rules.after)
  if old.rules and knows(old, own) then return 'replaced ' .. holder end
  if runs.state == 'running' and knows(runs, own) then return 'replaced ' .. runs.id end
  local waits = pending[holder] or old.state == 'scheduled' or old.state == 'queued'
  if waits and rules.known then return 'exists ' .. holder end
  if waits and rules.onto and rules.onto ~= holder then return 'holder ' .. holder end
  if waits then
    job.id, job.old, job.ops = holder, old, (old.ops or 0) + 1
    job.grows = #job.payload - (pending[holder] and #old.payload or size(old))
    local ids = {own}
    for id in string.gmatch(old.joined, '%S+') do
      if #ids < REMEMBERED then ids[#ids + 1] = id end
    end
    job.joined = table.concat(ids, ' ')
    local structure = old.state == 'queued' and (old.rules.group and 'grouped:' or 'queue:') .. old.rules.queue or 'scheduled'
    local score = old.state == 'queued' and tonumber(call('ZSCORE', key(structure), holder) or nil)
    job.turn = score and score >= 0 and score < 9e15 and score % 17592186044416
  end
  job.cancels = rules.on_conflict == 'cancel_running' and runs.state == 'running' and runs or old.cancels
  renew(job, waits and old, runs.state == 'running' and runs.id or nil)
end

-- Put a job among those that this call stores, in the place of one with its id.
local function add_pending(job, jobs)
  local before = pending[job.id]
  if before then job.old, job.turn = before.old, before.turn end
  job.place = before and before.place or #jobs + 1
  jobs[job.place], pending[job.id] = job, job
end

-- Before the job is written: delete the fields that belong to its earlier arguments, and ask a running job to end. Returns
-- its state, its turn in the queue, and whether it is new.
local function take_place(job, state, turn)
  local old, hash, running = job.old, key('job:', job.id), job.cancels
  if job.after then state, job.due = 'scheduled', math.max(job.due, now) end
  if running and not running.cancel_requested_at then
    running.cancel_requested_at = stamp
    call('HSET', running.hash, 'cancel_requested_at', stamp)
    local revision = digits((running.attempt or 0) + (running.ops or 0))
    record_order(running, 'cancel', revision, 'requested')
  end
  if old then
    if old.state == 'queued' and (state ~= 'queued' or old.rules.group ~= job.rules.group) then
      leave_queue(old)
    elseif old.state == 'scheduled' and state ~= 'scheduled' then
      call('ZREM', key('scheduled'), job.id)
    end
    call('HDEL', hash, 'payload', 'checkpoint', 'streak', 'tries_left', 'ended', 'token', 'error', 'op', 'ready_at')
    forget_steps(old)
    local ids = {job.id}
    event(ids, state, 'replaced')
  end
  if job.ops then call('HSET', hash, 'ops', job.ops, 'joined', job.joined) end
  return state, job.turn or turn, not old
end
-- luacheck: pop
