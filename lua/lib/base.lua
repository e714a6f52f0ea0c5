-- lib/base: what every script stands on: the clock, the keys, the refusals, a job as it is stored.
-- Of the libraries lib, queue, life, forget, due, occurrence and whole, in this order, each script names those put before it.
-- luacheck: push ignore 211 231
local LAYOUT = '1'
local GRACE = 5000                          -- ms a worker has, after a timeout, to say so
local KEEP_DEAD = 1209600000                -- dead and cancelled jobs are kept 14 days
local KEEP, KEEP_EVENTS, KEEP_QUEUES = 100000, 10000, 10000   -- finished jobs of each state; events; queues with nothing in them
local NEVER = '99999999999999'              -- ms, the score of a schedule that has no occurrence to come
local RULES = {__index = {priority = 0, tries = 3, timeout = 300000, retention = 86400000,
  backoff = '1000:2:300000'}}               -- what a header leaves unsaid
local PLAIN = {key = '', trace = '', digest = '', schedule = '', priority = '^%-?%d+$', backoff = '^%d+:%d+%.?%d*:%d+$'}  -- others: digits
local EVENT_IDS = 10 local COUNTS = 20000   -- jobs that one event speaks of; numbers that are counted by queue, about

local call, peek, base = redis.call, redis.pcall, KEYS[1]   -- peek finds nothing, and raises nothing, where a key is of a wrong type
local time = call('TIME')                   -- the one clock, read once
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)    -- the same as text: cheaper to send, and never rounded

local function key(name, id) return base .. ':' .. name .. (id or '') end
-- A whole number as text. Redis takes long to write one out, and in a batch most are alike.
local written = {}
local function digits(n)
  if n ~= n then n = 0 end                  -- no number at all, which somebody else has written
  written[n] = written[n] or string.format('%.0f', n)
  return written[n]
end

local function refusal(code, words) return redis.error_reply(string.sub(code .. ' ' .. words, 1, 300)) end

-- Is this fit to name a queue, a task or a worker?
local function is_name(text) return text and #text <= 128 and string.find(text, '^[%w_.:-]+$') end
local function are_names(texts, first)
  for i = first, #texts do if not is_name(texts[i]) then return false end end
  return true
end

-- A number of ms as the protocol writes it: up to 14 digits. nil for anything else.
local function ms(text) return text and #text <= 14 and string.find(text, '^%d+$') and tonumber(text) end
-- A whole number that is stored, as it is; the other one for what somebody else has written: between two writes is no time to raise.
local function numeral(text, otherwise)
  return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) < 9e15 and text or otherwise
end

-- The refusal of what is not a whole number of items up to `limit`; nil for what is.
local function beyond(n, limit)
  if n and n >= 0 and 1 / n > 0 and n <= limit and n % 1 == 0 then return nil end   -- -0 is none
  return refusal('TOO_MANY', tostring(n) .. ' items, a call takes 0 to ' .. limit)
end

local sizes = {scheduled = 0, running = 0, completed = 0, dead = 0, cancelled = 0}       -- of the structures, at first
local partition, crowded                    -- the settings of the whole partition; is there no room for one more queue's counts?

-- The error to return before anything else: not our namespace, or too many items. Reading what scripts write to makes a
-- key of a wrong type speak up here, and not between two writes. A verb that writes to one of the structures alone names it.
local function refused(n, limit, only)
  local layout = call('HGET', base, 'layout')
  if not layout then return refusal('NO_NAMESPACE', base .. ' does not exist: run init first') end
  if layout ~= LAYOUT then return refusal('WRONG_LAYOUT', base .. ' has layout ' .. layout .. ', not ' .. LAYOUT) end
  call('XLEN', key('events')) call('HLEN', key('backlog'))
  if only then call('ZCARD', key(only)) return beyond(n, limit) end
  partition = call('HGET', key('queues'), '*')
  for state in pairs(sizes) do sizes[state] = call('ZCARD', key(state)) end
  crowded = call('HLEN', key('counts')) >= COUNTS
  return beyond(n, limit)
end

local function begin() call('DEL', base .. ':') end      -- a first write denied to nobody: the rest runs when memory is full
-- What this user is denied is denied here, and not between two writes.
local function needs(...) if redis.acl_check_cmd and not redis.acl_check_cmd(...) then call(...) end end

-- Add to a number in a hash. One that somebody spoiled starts anew.
local function add(hash, name, by, anew)
  local sum = peek('HINCRBY', hash, name, by)
  if type(sum) == 'number' then return sum end
  call('HSET', hash, name, string.format('%.0f', (anew or 0) + by))
  return (anew or 0) + by
end
local function count(name, by) if by > 0 then add(base, name, by) end end
local function next_seq(n) return add(base, 'seq', n, now) end     -- anew, it is higher than any before

-- One move of some jobs, for whoever follows the stream.
local function event(ids, state, code)
  for i = 1, #ids, EVENT_IDS do
    call('XADD', key('events'), 'MAXLEN', '~', KEEP_EVENTS, '*',
      'jobs', table.concat(ids, ' ', i, math.min(i + EVENT_IDS - 1, #ids)), 'state', state, 'code', code)
  end
end

-- "<queue> <task> <submitted_at> [name=value …]" as a table; what is unsaid, or no number, has its default. Jobs of one header share it.
local headers = {}
local function read_header(spec)
  local header = string.sub(spec, 1, (string.find(spec, '\n', 1, true) or 0) - 1)
  if headers[header] then return headers[header] end
  local queue, task, at, rules = string.match(header, '^(%S+) (%S+) (%d+)(.*)$')
  local job = setmetatable({header = header, queue = queue, task = task, submitted_at = at}, RULES)
  headers[header] = job
  if not queue or rules == '' then return job end
  for name, value in string.gmatch(rules, '(%w+)=(%S+)') do
    if string.find(value, PLAIN[name] or '^%d+$') or value == 'none' and name == 'timeout' then job[name] = value end
  end
  return job
end

-- The word among a job's rules that is none of `known`, comes twice or says what cannot be; nil when all are well.
local shapes
local function unfit_rule(rules, known)
  if rules == '' then return nil end
  if not shapes then
    local more, hex = string.rep('%d?', 13), string.rep('%x', 16)   -- 14 digits in all reach the year 5138; a short digest's digits
    local number, some = '^%d' .. more .. '$', '^[1-9]' .. more .. '$'
    shapes = {priority = '^%-?%d%d?%d?$', delay = number, at = number, window = some, tries = some, timeout = number,
      retention = number, backoff = '^%d' .. more .. ':%d+%.?%d*:%d' .. more .. '$', key = '^[!-~]+$', trace = '^%x[%x-]+$',
      digest = '^' .. hex .. '%x*$', schedule = '^[%w_.:-]+$'}
  end
  local given = {}
  for word in string.gmatch(rules .. ' ', '([^ ]*) ') do
    local name, value = string.match(word, '^(%w+)=(.+)$')
    local allowed = name and not given[name] and #value <= 128 and (not known or string.find(known, ' ' .. name .. ' ', 1, true))
    local fits = allowed and (string.find(value, shapes[name] or '^$') or word == 'timeout=none')
    if not fits or name == 'priority' and math.abs(value) > 100 then return string.sub(word, 1, 80) end
    given[name] = true
  end
end

-- A job by its id: its stored fields, and its header's words under `rules`. Read once a script: what the script does to a
-- job is seen when the job is named again. What is no job has no state, as if nothing were there. One that runs has a whole lease.
local loaded = {}
local function load(id)
  if not id or loaded[id] then return loaded[id] or {} end
  local hash = key('job:', id)
  local v = peek('HMGET', hash, 'state', 'spec', 'token', 'attempt', 'tries_left', 'worker', 'claimed_at',
    'rank', 'streak', 'ended', 'ops', 'op', 'watched', 'cancel_requested_at', 'logged')
  local rules, runs = v[1] and v[2] and read_header(v[2]), v[1] == 'running'
  loaded[id] = rules and rules.queue and {id = id, hash = hash, state = v[1], spec = v[2], token = v[3],
    attempt = numeral(v[4], runs and '1'), tries_left = runs and numeral(v[5], rules.tries - 1), worker = v[6] or '?',
    claimed_at = numeral(v[7], stamp), rank = numeral(v[8]), streak = v[9], ended = v[10], ops = v[11], op = v[12],
    watched = v[13], cancel_requested_at = v[14], logged = v[15], rules = rules} or {id = id}
  return loaded[id]
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

-- What to answer a lease's verb at once; nil when the lease is live. A lease that ended repeats its first answer.
local function unheld(job, token, verb)
  if not job.state then return 'NOT_FOUND' end
  if job.token ~= token then return 'LEASE_LOST' end
  if job.state == 'running' then return nil end
  return string.match(job.ended or '', '^' .. verb .. ' (.+)$') or 'LEASE_LOST'
end
-- luacheck: pop
