-- retry: queue a dead or cancelled job again, with all its tries. Jobs that it cancelled wait for it again.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/steps.lua lib/calls.lua lib/members.lua lib/edges.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id           the job
-- ARGV  revision     the one that the caller saw: attempts plus operators' verbs accepted
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- ARGV  how          "anew": forget the kept steps; "all": upstreams that failed are retried, too, so that it waits for them;
--                    "" (or left out): go on after its steps, and do not wait for those that failed
-- ARGV  order        the word of an order for many jobs: the same word again gets the same answer, another order
--                    CHANGED; "" (or left out): none
-- REPLY string       "queued"; "scheduled" if it waits for other jobs again; or, with how all, "cancelled" until one of them
--                    is retried
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED WRONG_STATE INVALID
-- CODE  KEY_TAKEN    another job holds the key by now

local id, revision, by, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4] or ''
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if how ~= '' and how ~= 'anew' and how ~= 'all' then
  return refusal('INVALID', 'how ' .. string.sub(how, 1, 40) .. ': use anew or all, or leave it out')
end
local order = (how == '' and 'retry' or 'retry:' .. how) .. string.gsub(ARGV[5] or '', '^.', '@%0')
if string.find(order, '[^!-~]') or #order > 140 then return refusal('INVALID', 'order: use up to 128 visible ASCII characters') end

-- An upstream that failed and may be retried, or was, and its edges are not restored yet; of a job that was cancelled. If none
-- of the first 200 is one, a later one may be.
local function failed_upstream(of)
  if of.state ~= 'cancelled' or (of.broken or 0) == 0 then return nil end
  local ids = of.cause and {of.cause} or call('LRANGE', key('upstream:', of.id), 0, 199)
  local live
  for _, name in ipairs(ids) do
    local state = string.sub(name, 1, 1) == '/' and 'cancelled' or load(name).state
    if state == 'dead' or state == 'cancelled' then return name end
    if state and state ~= 'completed' then live = live or name end
  end
  return live or #ids == 200 and ids[1] or nil
end

local job = load_movable(id)
local at_once = order_answer(job, order, revision, 'dead', 'cancelled')
if at_once then return at_once end
local rules = job.rules
local lock = rules.key and key('key:' .. rules.queue .. '|' .. rules.key)
local holder = lock and call('GET', lock)
if holder and holder ~= id then
  return refusal('KEY_TAKEN', 'job ' .. holder .. ' holds the key ' .. rules.key .. ' of queue '
    .. rules.queue .. ': retry when that job has ended, or the key\'s window has')
end
local runs = rules.on_failure == 'run'      -- even if upstreams failed: it waits for the others
local waits = rules.on_failure and edges().read(job).needs and (runs or job.broken == 0) and edges().waits_for(job) > 0
local failed = how == 'all' and rules.on_failure and failed_upstream(edges().read(job))
check_audit(by)

begin()
if failed then
  call('HSET', job.hash, 'cause', failed)
  return audit(by, 'retry', id, rules.queue, record_order(job, order, revision, 'cancelled'))
end
if lock and not holder then call('SET', lock, id, unpack(rules.window and {'PX', rules.window} or {})) end
call('ZREM', key(job.state), id)
call('HDEL', key('job:', id), 'token', 'ended', 'streak', 'tries_left', 'finished_at', 'awaits')
if how == 'anew' then forget_steps(job) end
if not job.attempt then call('HDEL', key('job:', id), 'error') end -- an upstream's
backlog(rules.queue, 1, size(job))
if rules.on_failure and not waits then edges().forget_needs(job) elseif runs then call('HDEL', job.hash, 'cause') end
place(job, waits and 'scheduled' or 'queued', waits and edges().wait_until(job) or rank(rules.priority, next_seq(1)), 'retry',
  'ready_at', stamp)
if is_linked(job) then edges().on_change(job, place) end
return audit(by, 'retry', id, job.rules.queue, record_order(job, order, revision, job.state))
