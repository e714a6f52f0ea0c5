-- lib/base: the clock, the keys, refusals, input checks, and a job as it is stored. Every script needs it.
-- The libraries stand in front of a script in this order: base, rules, queue, flow, turns, places, tags, steps, conflict,
-- intake, calls, edges, links, deaths, surplus, lifecycle, prune, completion, due, claim, occurrence, integrity, outstanding,
-- audit.
-- luacheck: push ignore 211 231
local LAYOUT = '1'
local GRACE = 5000                          -- ms after a timeout in which the worker may still report it
local KEEP_DEAD = 1209600000                -- ms for which dead and cancelled jobs are kept: 14 days
local KEEP = 100000                         -- finished jobs kept in each state
local KEEP_EVENTS = 10000                   -- events kept in the stream
local KEEP_QUEUES = 10000                   -- queues kept that are empty and have no settings
local NEVER = '99999999999999'              -- ms, the score of a schedule without a next occurrence, and of a job that waits for others
local EVENT_IDS = 10                        -- jobs in one event
local COUNTS = 20000                        -- fields of the counts by queue, about
-- The values of rules that a header does not have.
local RULES = {__index = {priority = 0, tries = 3, timeout = 300000, retention = 86400000,
  backoff = '1000:2:300000'}}
-- What a rule's value must match to be used; rules that are not listed here are digits.
local PLAIN = {key = '', tags = '', group = '', trace = '', digest = '', schedule = '', death = '', on_conflict = '',
  on_failure = '', workflow = '', onto = '', after = '', replaced = '^%d+:%d+$', priority = '^%-?%d+$', backoff = '^%d+:%d+%.?%d*:%d+$'}

local call = redis.call
-- Returns an error instead of raising it, so a key of a wrong type counts as missing
local peek = redis.pcall
local base = KEYS[1]
local time = call('TIME')                   -- the only clock, read once
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)    -- now as text: cheaper to send, and never rounded

local function key(name, id) return base .. ':' .. name .. (id or '') end
-- A whole number as text. Formatting is slow, and most numbers of a batch are equal.
local written = {}
local function digits(n)
  written[n] = written[n] or string.format('%.0f', n)
  return written[n]
end

local function refusal(code, words) return redis.error_reply(string.sub(code .. ' ' .. words, 1, 300)) end

-- Is this a valid name of a queue, task or worker? HTTP clients remove . and .. from paths.
local NAME = 'A-Z a-z 0-9 _ . : -, but not . or .. alone'
local function is_name(text)
  return text and #text <= 128 and string.find(text, '^[%w_.:-]+$') and text ~= '.' and text ~= '..'
end

-- A number of ms as the protocol writes it, up to 14 digits; nil for anything else.
local function ms(text) return text and #text <= 14 and string.find(text, '^%d+$') and tonumber(text) end
-- A stored whole number; `otherwise` if the text is not one. A script must not raise between two writes.
local function whole_number(text, otherwise)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) < 9e15 and text or otherwise
end

-- The refusal if n is not a whole number from 0 to `limit`; else nil. (1 / n > 0 excludes -0.)
local function too_many(n, limit)
  if n and n >= 0 and 1 / n > 0 and n <= limit and n % 1 == 0 then return nil end
  return refusal('TOO_MANY', tostring(n) .. ' items: a call takes 0 to ' .. limit .. ': split it')
end

-- Members of each structure
local sizes = {scheduled = 0, running = 0, completed = 0, dead = 0, cancelled = 0}
local partition                             -- the settings of the whole partition
local crowded                               -- has `counts` as many fields as it may have?
local patterns                              -- "<pattern> <ms> …": patterns for which workers wait, until when
local replaced                              -- "<life> <ms> …": lives that were reconciled, until when they may not claim

-- The error to return before anything else: no namespace, another layout, or too many items. It also reads
-- the keys that scripts write to, so that a key of a wrong type raises here and not between two writes.
-- `only` names the one structure that the verb writes to, if it is only one.
local function refused(n, limit, only)
  local layout
  layout, patterns, replaced = unpack(call('HMGET', base, 'layout', 'patterns', 'replaced'))
  if not layout then return refusal('NO_NAMESPACE', base .. ' does not exist: submit a job with a client, or run the script init') end
  if layout ~= LAYOUT then return refusal('WRONG_LAYOUT', base .. ' has layout ' .. layout .. ', not ' .. LAYOUT
    .. ': use the version of Sublet that wrote it, or finish its drop') end
  call('XLEN', key('events'))
  call('HLEN', key('backlog'))
  if only then
    call('ZCARD', key(only))
    return too_many(n, limit)
  end
  partition = call('HGET', key('queues'), '*')
  for state in pairs(sizes) do sizes[state] = call('ZCARD', key(state)) end
  crowded = call('HLEN', key('counts')) >= COUNTS
  return too_many(n, limit)
end

-- A first write that frees memory: after it Redis allows the script's other writes even when memory is full.
local function begin() call('DEL', base .. ':') end
-- Raise Redis's own error here, before the first write, if the user may not run this command.
local function needs(...) if redis.acl_check_cmd and not redis.acl_check_cmd(...) then call(...) end end

-- Add to a number in a hash. If the field is not a number, it starts again at `anew`.
local function add(hash, name, by, anew)
  local sum = peek('HINCRBY', hash, name, by)
  if type(sum) == 'number' then return sum end
  call('HSET', hash, name, string.format('%.0f', (anew or 0) + by))
  return (anew or 0) + by
end
local function count(name, by) if by > 0 then add(base, name, by) end end
-- Restarted at the time, it is above all earlier ones
local function next_seq(n) return add(base, 'seq', n, now) end

-- Append one state change of some jobs to the event stream.
local function event(ids, state, code)
  for i = 1, #ids, EVENT_IDS do
    call('XADD', key('events'), 'MAXLEN', '~', KEEP_EVENTS, '*',
      'jobs', table.concat(ids, ' ', i, math.min(i + EVENT_IDS - 1, #ids)), 'state', state, 'code', code)
  end
end

-- "<queue> <task> <submitted_at> [name=value …]" as a table. A rule that is absent or not valid has its
-- default. Jobs with equal headers share one table.
local headers = {}
local function read_header(spec)
  local header = string.sub(spec, 1, (string.find(spec, '\n', 1, true) or 0) - 1)
  if headers[header] then return headers[header] end
  local queue, task, at, rules = string.match(header, '^(%S+) (%S+) (%d+)(.*)$')
  local job = setmetatable({header = header, queue = queue, task = task, submitted_at = at}, RULES)
  headers[header] = job
  if not queue or rules == '' then return job end
  for name, value in string.gmatch(rules, '([%w_]+)=(%S+)') do
    if string.find(value, PLAIN[name] or '^%d+$') or value == 'none' and name == 'timeout' then job[name] = value end
  end
  return job
end

-- A job by its id: its stored fields, and its header as `rules`. Read once per script; the same table is
-- returned when the job is named again, so changes by this script are seen. Anything that is not a job has no
-- state. This is the one place that checks stored values: numbers that are not valid get a usable value, and
-- a running job has all fields of a lease.
local loaded = {}
local function load(id)
  if not id or loaded[id] then return loaded[id] or {} end
  local hash = key('job:', id)
  local v = peek('HMGET', hash, 'state', 'spec', 'token', 'attempt', 'tries_left', 'worker', 'claimed_at',
    'rank', 'streak', 'ended', 'ops', 'op', 'watched', 'cancel_requested_at', 'logged', 'held')
  local rules, runs = v[1] and v[2] and read_header(v[2]), v[1] == 'running'
  loaded[id] = rules and rules.queue and {id = id, hash = hash, state = v[1], spec = v[2], token = v[3],
    attempt = whole_number(v[4], runs and '1'), tries_left = runs and whole_number(v[5], rules.tries - 1),
    worker = v[6] or '?', claimed_at = whole_number(v[7], stamp), rank = whole_number(v[8]),
    streak = v[9], ended = v[10], ops = v[11], op = v[12],
    watched = v[13], cancel_requested_at = v[14], logged = v[15], held = whole_number(v[16]), rules = rules} or {id = id}
  return loaded[id]
end

-- 24 hexadecimal digits, computed from a text. Redis's own function for this is missing in some servers for tests.
local function digest_of(text)
  local a, b, c = 0, 0, 0
  for i = 1, #text do
    local byte = string.byte(text, i)
    a, b, c = (a * 33 + byte) % 4294967291, (b * 257 + byte) % 4294967279, (c * 65599 + byte) % 4294967231
  end
  return string.format('%08x%08x%08x', a, b, c)
end

-- The bytes of a job's payload, while it has one.
local function size(job)
  local inline = #job.spec - #job.rules.header
  return inline > 0 and inline - 1 or call('HSTRLEN', job.hash, 'payload')
end

-- When a lease ends that begins, or is extended, now.
local function lease_end(lease, claimed_at, timeout)
  return timeout == 'none' and now + lease or math.min(now + lease, claimed_at + timeout + GRACE)
end

-- The answer to a lease's verb if the lease is not live; nil if it is. A lease that ended repeats its first
-- answer.
local function lease_answer(job, token, verb)
  if not job.state then return 'NOT_FOUND' end
  if job.token ~= token then return 'LEASE_LOST' end
  if job.state == 'running' then return nil end
  return string.match(job.ended or '', '^' .. verb .. ' (.+)$') or 'LEASE_LOST'
end
-- luacheck: pop
