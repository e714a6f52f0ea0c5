-- configure: set the limits of a queue, which submit and claim enforce, or of the whole partition, and the task for dead jobs.
--
-- LIBS  lib/base.lua lib/queue.lua lib/flow.lua lib/turns.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue, or * for the partition
-- ARGV  revision     the one that the caller saw: operators' verbs on this queue so far, 0 if there were none
-- ARGV  settings     all settings, as words: jobs=N (waiting and running) bytes=N (of their payloads)
--                    concurrency=N (running jobs) group_concurrency=N (of each group) rate=N per=MS [burst=N]
--                    (tokens: a job takes its cost when it starts) group_rate=N group_per=MS [group_burst=N]; for *:
--                    completed=N dead=N cancelled=N (finished jobs kept, 100000 each unless given)
--                    queues=N (known queues, 100000 unless given); for both: on_dead=[QUEUE/]TASK (a job of this
--                    task reports each dead job); "" removes all
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       the settings as they are stored
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local KNOWN = {jobs = 'queue', bytes = 'queue', completed = '*', dead = '*', cancelled = '*', queues = '*', on_dead = 'both',
  concurrency = 'queue', group_concurrency = 'queue', rate = 'queue', per = 'queue', burst = 'queue', group_rate = 'queue',
  group_per = 'queue', group_burst = 'queue'}
local name, revision, settings, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not settings or name ~= '*' and not is_name(name) then
  return refusal('INVALID', 'name a queue with 1 to 128 of ' .. NAME .. ', or the partition with *')
end

local words, given, limited, flow_given = '', {}, false, {}
for word in string.gmatch(settings, '%S+') do
  local what, value = string.match(word, '^([%l_]+)=(.+)$')
  local other, task = string.match(value or '', '^([^/]*)/(.*)$')
  local fits = what == 'on_dead' and is_name(task or value) and (not other or is_name(other))
    or what and KNOWN[what] == (name == '*' and '*' or 'queue') and ms(value)
  if not fits or given[what] then
    return refusal('INVALID', 'setting ' .. string.sub(word, 1, 40)
      .. ': a queue takes jobs=N bytes=N concurrency=N rate=N per=MS burst=N and group_ before these four, * takes completed=N '
      .. 'dead=N cancelled=N queues=N, both take on_dead=TASK or on_dead=QUEUE/TASK; each once')
  end
  given[what], words = true, words .. ' ' .. word
  if KNOWN[what] == 'queue' and what ~= 'jobs' and what ~= 'bytes' then flow_given[what], limited = value, true end
end
local queue = get_queue(name)
local line = by_turns(name, limited)
local fault = line and line.fault(flow_given)
if fault then return refusal('INVALID', 'setting ' .. fault) end
local answer = string.sub(words, 2)
local at_once = settings_answer(queue, 'configure', revision, string.gsub(limits(queue), ' flow=1', '') == words and answer)
if at_once then return at_once end
check_audit(by)
local in_use = line and call('ZCARD', line.all) + call('HLEN', line.places) + call('HLEN', key('groups:', name)) > 0

begin()
local paused, flows = setting(queue.settings, 'paused'), flow(name) ~= nil
save_settings(queue, 'configure', revision, words .. (paused and ' paused=' .. paused or '')
  .. (flows and (limited or in_use) and ' flow=1' or ''))
if limited then line:start() end
if limited or in_use then line:changed() elseif flows then line:stop() end
audit(by, 'configure', name, name == '*' and '' or name, answer == '' and 'no limits' or answer)
return answer
