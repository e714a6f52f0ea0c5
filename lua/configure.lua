-- configure: set a queue's limits, which submit keeps, or those of the whole partition.
--
-- LIBS  lib/base.lua lib/queue.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  queue        the queue, or * for the partition
-- ARGV  revision     what the caller saw: operator's verbs on this queue so far, 0 for a queue that had none
-- ARGV  settings     all that shall hold, as words: jobs=N (waiting and running) bytes=N (of their payloads); for *:
--                    completed=N dead=N cancelled=N (finished jobs kept, 100000 each if unsaid); "" lifts all limits
-- REPLY string       the settings as they are kept
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID CHANGED

local KNOWN = {jobs = 'queue', bytes = 'queue', completed = '*', dead = '*', cancelled = '*'}
local name, revision, settings = ARGV[1], ARGV[2], ARGV[3]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
if not settings or name ~= '*' and not is_name(name) then return refusal('INVALID', 'a queue is * or 1 to 128 of A-Z a-z 0-9 _ . : -') end

local words, count_of = '', {}
for word in string.gmatch(settings, '%S+') do
  local what, number = string.match(word, '^(%l+)=(%d+)$')
  if not number or #number > 14 or count_of[what] or KNOWN[what] ~= (name == '*' and '*' or 'queue') then
    return refusal('INVALID', 'setting ' .. word .. ': a queue has jobs=N and bytes=N, * has completed=N dead=N cancelled=N, each once')
  end
  count_of[what], words = true, words .. ' ' .. word
end
local queue = look_at(name)
local answer = string.sub(words, 2)
local at_once = outdated(queue, 'configure', revision, limits(queue) == words and answer)
if at_once then return at_once end

begin()
local paused = setting(queue.settings, 'paused')
arrange(queue, 'configure', revision, words .. (paused and ' paused=' .. paused or ''))
return answer
