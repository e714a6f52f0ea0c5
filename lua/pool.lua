-- pool: put a pool: workers are summoned for its queues. Without settings: remove it.
--
-- LIBS  lib/base.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  pool         its name
-- ARGV  revision     the one that the caller saw: how often this pool was put, 0 if it does not exist or is malformed
-- ARGV  settings     all settings, as words, each once; "" removes the pool:
--                    queues=a,b (at most 32)  invoker=process|http|lambda|none  min=N max=N (workers; 0, 10)
--                    wait=ms (that a job should wait at most; 5000)  slots=N (jobs of a worker; 10)
--                    linger=ms (that an idle worker stays; 5000)
--                    arrive=ms (in which a summoned worker must enlist; 15000)
-- ARGV  target       what the invoker calls: opaque, at most 1 KiB
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "created", "changed" or "removed"
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID NOT_FOUND CHANGED

local NUMBERS = {min = true, max = true, wait = true, slots = true, linger = true, arrive = true}
local INVOKERS = {process = true, http = true, lambda = true, none = true}
local name, revision, settings, target, by = unpack(ARGV, 1, 5)
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not is_name(name) or not target or #target > 1024 or string.find(target, '%c') then
  return refusal('INVALID',
    'name a pool with 1 to 128 of ' .. NAME .. '; target: one line of at most 1024 bytes')
end

-- Are these at most 32 names of queues, each once?
local function are_queues(text)
  local n, seen = 0, {}
  for queue in string.gmatch(text .. ',', '([^,]*),') do
    if not is_name(queue) or seen[queue] then return false end
    n, seen[queue] = n + 1, true
  end
  return n <= 32
end

local words, given = '', {}
for word in string.gmatch(settings, '%S+') do
  local what, value = string.match(word, '^(%l+)=(.+)$')
  local fits = what == 'queues' and are_queues(value) or what == 'invoker' and INVOKERS[value]
    or NUMBERS[what] and ms(value)
  if not what or given[what] or not fits then
    return refusal('INVALID', 'setting ' .. string.sub(word, 1, 80)
      .. ' is unknown, repeated or not valid for a pool: use queues=a,b (1 to 32) invoker=process|http|lambda|none '
      .. 'min=N max=N wait=ms slots=N linger=ms arrive=ms, each once')
  end
  given[what], words = value, words .. ' ' .. word
end
local known = call('HGET', key('pools'), name)
check_audit(by)
local held = string.match(known or '', '^%d+(.*)$')
local current = string.match(known or '', '^%d+') or '0'
local seen = string.match(revision, '^%d+$') or '-1'
local moved = refusal('CHANGED', 'pool ' .. name .. ' is at revision ' .. current .. ', not ' .. revision
  .. ': read it again')

if words == '' then                         -- removed already: a repeated call gets the same answer
  if not known then return revision == '0' and refusal('NOT_FOUND', 'no pool ' .. name) or 'removed' end
  if current ~= revision then return moved end
  begin()
  call('HDEL', key('pools'), name)
  call('DEL', key('pool:' .. name), key('crew:' .. name), key('summons:' .. name))
  return audit(by, 'pool-remove', name, '', 'removed')
end
local fits = given.queues and given.invoker and tonumber(given.min or 0) <= tonumber(given.max or 10)
for _, what in ipairs({'wait', 'slots', 'arrive'}) do fits = fits and tonumber(given[what] or 1) >= 1 end
if not fits or tonumber(given.max or 10) > 1000 then
  return refusal('INVALID',
    'a pool needs queues and an invoker, min <= max <= 1000, and wait, slots and arrive >= 1')
end
local answer = seen == '0' and 'created' or 'changed'
if held == words .. '\n' .. target and tonumber(current) == seen + 1 then return answer end
if current ~= revision then return moved end
local before = string.match(held or '', '^[^\n]* queues=([^%s]+)')
local more = false                          -- does it have a queue that it had not?
for queue in string.gmatch(given.queues, '[^,]+') do
  more = more or not string.find(',' .. (before or '') .. ',', ',' .. queue .. ',', 1, true)
end
local memory, summons = key('pool:' .. name), key('summons:' .. name)
local latest = string.format('%.0f', now + tonumber(given.arrive or 15000))
local later = call('ZRANGE', summons, '(' .. latest, '+inf', 'BYSCORE', 'LIMIT', 0, 1000)
call('HLEN', memory)
begin()
call('HDEL', memory, 'wanted')
if given.queues ~= before then              -- the averages are of the earlier queues
  call('HDEL', memory, 'at', 'came', 'ended', 'took', 'rate', 'run', 'ran', 'over', 'running', 'came_at')
end
-- Present workers do not serve the new queue, and drain (see enlist)
if more then
  call('DEL', key('crew:' .. name), summons)
  later = {}
end
for _, id in ipairs(later) do call('ZADD', summons, latest, id) end
call('HSET', key('pools'), name, string.format('%.0f', seen + 1) .. words .. '\n' .. target)
audit(by, 'pool-put', name, '', answer .. ': queues=' .. given.queues .. ' max=' .. (given.max or '10'))
return answer
