-- schedule: put a schedule: a job is submitted at each occurrence of its plan. Without a plan: remove it.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  name         the schedule's name, at most 40 characters
-- ARGV  revision     the one that the caller saw: how often this schedule was put, 0 if it does not exist
-- ARGV  was          ms, the next occurrence that the caller saw; "" to skip this check
-- ARGV  plan         when it fires: opaque, at most 4 KiB; "" removes the schedule
-- ARGV  queue        the queue of its jobs
-- ARGV  task         the task of its jobs
-- ARGV  rules        their rules, as submit has them: priority tries timeout retention backoff
--                    tags keep
-- ARGV  overlap      what happens while the job of an earlier occurrence is unfinished: allow (both run),
--                    skip, queue (it waits)
-- ARGV  paused       1 or 0
-- ARGV  occurrence   ms, the next occurrence; "" without one
-- ARGV  due          ms, when that one is fired: the occurrence, or a little later
-- ARGV  payload      the payload of its jobs, at most 256 KiB
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "created", "changed" or "removed"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID NOT_FOUND CHANGED

local KNOWN = ' priority tries timeout stall retention backoff tags group cost keep '
local OVERLAPS = {allow = true, skip = true, queue = true}
local name, revision, was, plan, queue, task = unpack(ARGV, 1, 6)
local rules, overlap, paused, occurrence, due, payload, by = unpack(ARGV, 7, 13)
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(name) or #name > 40 then
  return refusal('INVALID', 'name a schedule with 1 to 40 of ' .. NAME)
end
local hash = key('schedule:' .. name)
needs('HSETNX', hash, 'made_at', stamp)
local known = call('HMGET', hash, 'revision', 'plan', 'queue', 'task', 'rules', 'overlap', 'paused',
  'payload', 'occurrence')
call('ZCARD', key('schedules'))
check_audit(by)
local current, seen = known[1] or '0', string.match(revision or '', '^%d+$')
-- The highest revision of a removed schedule: a new one goes on from there
local removed = ms(call('HGET', base, 'removed')) or 0
local why = current ~= seen and ' is at revision ' .. current .. ', not ' .. tostring(revision)
  or known[1] and was ~= '' and known[9] ~= was and ' has fired since it was read'
local stale = why and refusal('CHANGED', 'schedule ' .. name .. why .. ': read it again')

if plan == '' then                          -- removed already: a repeated call gets the same answer
  if not known[1] and revision == '0' then return refusal('NOT_FOUND', 'no schedule ' .. name) end
  if known[1] and stale then return stale end
  begin()
  if (ms(current) or 0) > removed then call('HSET', base, 'removed', current) end
  call('DEL', hash)
  call('ZREM', key('schedules'), name)
  if known[1] then audit(by, 'schedule-remove', name, known[3] or '', 'removed') end
  return 'removed'
end

local moments = payload and (occurrence == '' or ms(occurrence) and ms(due))
if not moments or #plan > 4096 or #payload > 262144 or not OVERLAPS[overlap]
    or paused ~= '0' and paused ~= '1' then
  return refusal('INVALID', 'plan: at most 4096 bytes; payload: at most 262144 bytes; '
    .. 'overlap: allow, skip or queue; paused: 0 or 1; occurrence and due: ms')
end
if not (is_name(queue) and is_name(task)) then
  return refusal('INVALID', 'name queue and task with 1 to 128 of ' .. NAME)
end
local unfit, advice = invalid_rule(rules, KNOWN)
if unfit then return refusal('INVALID', 'rule ' .. unfit .. advice) end

local since = seen == '0' and removed or 0
local put, same = (seen or -2) + 1 + since, true
for i, value in ipairs({plan, queue, task, rules, overlap, paused, payload}) do
  same = same and known[i + 1] == value
end
if same and (revision == '0' or tonumber(current) == put) then
  return seen == '0' and 'created' or 'changed'
end
if stale then return stale end
get_queue(queue)
if known[1] then begin() end                -- an existing one can be paused when memory is full, too
call('HSET', hash, 'revision', string.format('%.0f', put), 'plan', plan, 'queue', queue, 'task', task,
  'rules', rules,
  'overlap', overlap, 'paused', paused, 'occurrence', occurrence, 'payload', payload, 'held', '', 'answer', '', 'changed_at', stamp)
call('HSETNX', hash, 'made_at', stamp)
call('ZADD', key('schedules'), (paused == '1' or occurrence == '') and NEVER or due, name)
-- Idle workers wait for a later moment
if call('ZRANGE', key('schedules'), 0, 0)[1] == name then wake(queue) end
local answer = seen == '0' and 'created' or 'changed'
if known[7] and known[7] ~= paused then
  local is_paused = paused == '1'
  audit(by, is_paused and 'schedule-pause' or 'schedule-resume', name, queue, is_paused and 'paused' or 'resumed')
else
  audit(by, 'schedule-put', name, queue, answer .. ': task ' .. task)
end
return answer
