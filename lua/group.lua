-- group: set the limits of one group of a queue, in place of those that the queue sets for each group, and its share.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/turns.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue
-- ARGV  revision     the one that the caller saw: operators' verbs on this queue so far, 0 if there were none
-- ARGV  group        the group, 1 to 128 of ! to ~; it need not have had a job yet
-- ARGV  settings     all its settings, as words: concurrency=N rate=N per=MS [burst=N] share=1…100 (turns that it gets
--                    for each one of another group; 1 unless given); "" removes all
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       the settings as they are stored
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local KNOWN = {concurrency = true, rate = true, per = true, burst = true, share = true}
local GROUPS = 100000                       -- groups of a queue that have settings
local name, revision, group, settings, by = unpack(ARGV, 1, 5)
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not settings or not is_name(name) or #group > 128 or not string.find(group, '^[!-~]+$')
  or string.find(group, '^%.%.?$') then
  return refusal('INVALID', 'name a queue with 1 to 128 of A-Z a-z 0-9 _ . : -, and a group with 1 to 128 of ! to ~, '
    .. 'but not . or .. alone')
end

local words, given = {}, {}
for word in string.gmatch(settings, '%S+') do
  local what, value = string.match(word, '^(%l+)=(%d+)$')
  if what == 'share' and (tonumber(value) < 1 or tonumber(value) > 100) then
    return refusal('INVALID', 'setting ' .. string.sub(word, 1, 40) .. ': use 1 to 100')
  end
  if not (what and KNOWN[what] and ms(value)) or given[what] then
    return refusal('INVALID', 'setting ' .. string.sub(word, 1, 80)
      .. ': a group takes concurrency=N rate=N per=MS burst=N, N of up to 14 digits, and share=1 to 100; each once')
  end
  given[what], words[#words + 1] = value, word
end
local queue, line, answer = get_queue(name), by_turns(name, true), table.concat(words, ' ')
local fault = line.fault(given)
if fault then return refusal('INVALID', 'setting ' .. fault) end
local own = call('HGET', key('groups:', name), group)
local at_once = settings_answer(queue, 'group', revision, (own or '') == answer and answer)
if at_once or (own or '') == answer then return at_once or answer end
if not own and answer ~= '' and call('HLEN', key('groups:', name)) >= GROUPS then
  return refusal('INVALID', 'queue ' .. name .. ' has ' .. GROUPS .. ' groups with settings, the most: remove those of another')
end
check_audit(by)
call('ZCARD', line:group(group).home)

begin()
local paused = setting(queue.settings, 'paused')
save_settings(queue, 'group', revision, limits(queue) .. (paused and ' paused=' .. paused or ''))
if answer == '' then call('HDEL', key('groups:', name), group) else call('HSET', key('groups:', name), group, answer) end
line:read_limits()
if answer ~= '' then line:start() end
line:settle(line:group(group))
line:call_worker()
audit(by, 'group', group, name, answer == '' and 'no settings' or answer)
return answer
