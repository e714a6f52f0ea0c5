-- reschedule: move a waiting job to another moment, change its priority, or both.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     the one that the caller saw: attempts plus operators' verbs accepted
-- ARGV  rules        words, at least one: priority=-100…100, and at=ms since 1970 or delay=ms. A moment that has
--                    passed means now. What is not given stays; among jobs of its priority a queued job keeps its turn
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "queued" or "scheduled <ms>"
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE INVALID

local id, revision, rules, by = ARGV[1], ARGV[2], ARGV[3] or '', ARGV[4]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local unfit, advice = invalid_rule(rules, ' priority at delay ')
local function given(name) return tonumber(string.match(' ' .. rules, ' ' .. name .. '=(%S+)') or nil) end
local priority, at, delay = given('priority'), given('at'), given('delay')
if unfit or at and delay or not (priority or at or delay) then
  return refusal('INVALID', unfit and 'rule ' .. unfit .. advice
    or 'rules ' .. rules .. ': give priority, and at or delay, or one of these')
end
local job = load_movable(id)
local order = 'reschedule:' .. string.gsub(rules, ' ', ',')
local at_once = order_answer(job, order, revision, 'scheduled', 'queued')
if at_once then return at_once end
if (at or delay) and job.rules.on_failure and edges().read(job).needs then
  return refusal('WRONG_STATE', 'job ' .. id .. ' waits for other jobs: promote it to run it now')
end
check_audit(by)
local waits = job.state == 'scheduled'
local structure = key(waits and 'scheduled' or (job.rules.group and 'grouped:' or 'queue:') .. job.rules.queue)
local score = tonumber(call('ZSCORE', structure, id) or nil)
local wanted = at or delay and math.min(now + delay, 1e14 - 1)
local moment = wanted or waits and score or 0
local state = moment > now and 'scheduled' or 'queued'

-- The job's place in its queue: its old one among those of its priority, if it has one.
local function new_rank()
  local held = not waits and score and score >= 0 and score < 9e15 and score % 17592186044416
  return waits and due_rank(job) or rank(job.rules.priority, held or next_seq(1))
end

-- The header with the new rules. A schedule's job keeps its occurrence, which is in `at`.
local function new_header()
  local header = job.rules.header
  if priority then
    header = string.gsub(header, ' priority=%S+', '')
    if priority ~= 0 then header = header .. ' priority=' .. string.format('%d', priority) end
  end
  if wanted and (waits or state == 'scheduled') and not job.rules.schedule then
    header = string.gsub(string.gsub(header, ' at=%S+', ''), ' delay=%S+', '') .. ' at=' .. digits(math.max(moment, now))
  end
  return header
end

begin()
local payload = string.sub(job.spec, #job.rules.header + 1)
job.rules = read_header(new_header())
job.spec = job.rules.header .. payload
call('HSET', job.hash, 'spec', job.spec)
if waits and state ~= 'scheduled' then call('ZREM', structure, id) elseif not waits and state ~= 'queued' then leave_queue(job) end
local answer = state == 'queued' and state or state .. ' ' .. digits(moment)
place(job, state, state == 'queued' and new_rank() or moment, 'reschedule',
  unpack(wanted and {'ready_at', digits(math.max(moment, now))} or {}))
audit(by, 'reschedule', id, job.rules.queue, answer .. (priority and ' priority=' .. priority or ''))
return record_order(job, order, revision, answer)
