-- configure: set the limits of a queue, which submit enforces, or of the whole partition, and the task for dead jobs.
--
-- LIBS  lib/base.lua lib/queue.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue, or * for the partition
-- ARGV  revision     the one that the caller saw: operators' verbs on this queue so far, 0 if there were none
-- ARGV  settings     all settings, as words: jobs=N (waiting and running) bytes=N (of their payloads); for *:
--                    completed=N dead=N cancelled=N (finished jobs kept, 100000 each unless given)
--                    queues=N (known queues, 100000 unless given); for both: on_dead=[QUEUE/]TASK (a job of this
--                    task reports each dead job); "" removes all
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       the settings as they are stored
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local KNOWN = {jobs = 'queue', bytes = 'queue', completed = '*', dead = '*', cancelled = '*', queues = '*',
  on_dead = 'both'}
local name, revision, settings, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not settings or name ~= '*' and not is_name(name) then
  return refusal('INVALID', 'name a queue with 1 to 128 of ' .. NAME .. ', or the partition with *')
end

local words, given = '', {}
for word in string.gmatch(settings, '%S+') do
  local what, value = string.match(word, '^([%l_]+)=(.+)$')
  local other, task = string.match(value or '', '^([^/]*)/(.*)$')
  local fits = what == 'on_dead' and is_name(task or value) and (not other or is_name(other))
    or what and KNOWN[what] == (name == '*' and '*' or 'queue') and ms(value)
  if not fits or given[what] then
    return refusal('INVALID', 'setting ' .. string.sub(word, 1, 80)
      .. ': a queue takes jobs=N and bytes=N, the partition (*) takes completed=N dead=N cancelled=N queues=N, '
      .. 'N of up to 14 digits; both take on_dead=TASK or on_dead=QUEUE/TASK; each once')
  end
  given[what], words = true, words .. ' ' .. word
end
local queue = get_queue(name)
local answer = string.sub(words, 2)
local at_once = settings_answer(queue, 'configure', revision, limits(queue) == words and answer)
if at_once then return at_once end
check_audit(by)

begin()
local paused = setting(queue.settings, 'paused')
save_settings(queue, 'configure', revision, words .. (paused and ' paused=' .. paused or ''))
audit(by, 'configure', name, name == '*' and '' or name, answer == '' and 'no limits' or answer)
return answer
