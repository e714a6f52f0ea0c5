-- publish: put tasks into the catalogue, or renew them there. The catalogue shows which tasks workers run.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  starting     "yes" when a worker starts: its descriptions replace others; "no" for a renewal, which
--                    replaces only a description that was not renewed for 3 hours
-- ARGV  task digest description …  up to 100 times: a task's name, 16 to 128 hexadecimal digits that identify
--                    its description, and this description, at most 8 KiB
-- REPLY array        per task "written", "kept" (it has a description, which may be another), or "full": the
--                    catalogue has 1,000 tasks
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY INVALID

local TASKS = 1000                          -- tasks in the catalogue
local DESCRIPTION_MAX = 8192                -- bytes
local UNRENEWED = 10800000                  -- ms after which a renewal replaces another description
local UNOFFERED = 604800000                 -- ms without a renewal after which a task is removed: 7 days
local FRESH = 1800000                       -- ms in which a renewal is not repeated
local starting = ARGV[1]
local refused_because = refused((#ARGV - 1) / 3, 100, 'catalogue')
if refused_because then return refused_because end
if starting ~= 'yes' and starting ~= 'no' then return refusal('INVALID', 'starting: use yes or no') end
for i = 2, #ARGV, 3 do
  local digest = string.find(ARGV[i + 1], '^%x+$') and #ARGV[i + 1] >= 16 and #ARGV[i + 1] <= 128
  if not is_name(ARGV[i]) or not digest or #ARGV[i + 2] > DESCRIPTION_MAX then
    return refusal('INVALID', 'task: use 1 to 128 of ' .. NAME .. '; digest: 16 to 128 hexadecimal digits; '
      .. 'description: at most ' .. DESCRIPTION_MAX .. ' bytes')
  end
end
local catalogue, tasks = key('catalogue'), key('tasks')
local known = call('HLEN', tasks)
local old = call('ZRANGE', catalogue, '-inf', now - UNOFFERED, 'BYSCORE', 'LIMIT', 0, 100)
local answers, changed = {}, #old

if #old > 0 then
  call('ZREM', catalogue, unpack(old))
  known = known - call('HDEL', tasks, unpack(old))
end
for i = 2, #ARGV, 3 do
  local task, digest, description = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local held = call('HGET', tasks, task)
  local age = now - tonumber(call('ZSCORE', catalogue, task) or 0)
  local same = held and string.match(held, '^%x+') == digest
  local replaces = not same and (not held or starting == 'yes' or age > UNRENEWED)
  local answer = replaces and not held and known >= TASKS and 'full' or replaces and 'written' or 'kept'
  if answer == 'written' then
    call('HSET', tasks, task, digest .. ' ' .. description)
    known, changed = known + (held and 0 or 1), changed + 1
  end
  if answer == 'written' or same and age > FRESH then call('ZADD', catalogue, stamp, task) end
  answers[#answers + 1] = answer
end
count('published', changed)
return answers
