-- lib/steps: the kept steps of a job, and the wait of a suspended one. It needs base and queue.
-- luacheck: push ignore 211
local STEP_MAX, STEPS, STEP_BYTES = 65536, 1000, 1048576  -- bytes of a step; steps of a job, and their bytes
local KINDS = {sleep = true, signal = true, call = true}

-- The fault of a step's name or value; nil if both are valid.
local function step_fault(name, value)
  if not is_name(name) then return 'step or signal ' .. string.sub(tostring(name), 1, 40) .. ': use 1 to 128 of ' .. NAME end
  if #value > STEP_MAX then
    return 'step or signal ' .. name .. ' has ' .. #value .. ' bytes; it may have ' .. STEP_MAX
      .. ': store the data elsewhere, its address here'
  end
end

-- How many steps a job has kept, and the bytes of their names and values.
local function steps_of(job)
  local n, bytes = string.match(call('HGET', job.hash, 'steps') or '', '^(%d+) (%d+)$')
  return tonumber(n or 0), tonumber(bytes or 0)
end

-- The words of a refusal if so many more steps, and bytes, do not fit into a job; else nil.
local function steps_full(job, more, room)
  local n, bytes = steps_of(job)
  if n + more <= STEPS and bytes + room <= STEP_BYTES then return nil end
  return 'job ' .. job.id .. ' has ' .. n .. ' steps of ' .. bytes .. ' bytes; it may have ' .. STEPS .. ' of ' .. STEP_BYTES
    .. ': end it, and go on in another job'
end

local function kept_step(job, name) return call('HGET', job.hash, 'step:' .. name) end
local function keep_step(job, name, kind, value)
  local n, bytes = steps_of(job)
  local before = string.match(kept_step(job, name) or '', '\n(.*)$')
  if before then n, bytes = n - 1, bytes - #name - #before end
  call('HSET', job.hash, 'step:' .. name, stamp .. ' ' .. kind .. '\n' .. value,
    'steps', digits(n + 1) .. ' ' .. digits(bytes + #name + #value))
end

-- The job got further: all its tries begin again.
local function renew_tries(job)
  if job.state ~= 'running' then return call('HDEL', job.hash, 'tries_left', 'streak') end
  job.tries_left = digits(job.rules.tries - 1)
  call('HSET', job.hash, 'tries_left', job.tries_left, 'streak', '')
end

-- For which step a suspended job waits: its kind and name, and the job's old rank; nil for other jobs.
local function wait_of(job)
  if job.state ~= 'scheduled' or string.sub(job.ended or '', 1, 18) ~= 'suspend scheduled ' then return nil end
  return string.match(call('HGET', job.hash, 'awaits') or '', '^(%l+) (%S+) (%d+)$')
end

-- The wait of a suspended job ends with this step. Returns its old place among the jobs of its priority.
local function end_wait(job, name, kind, value, turn)
  keep_step(job, name, kind, value)
  renew_tries(job)
  call('HDEL', job.hash, 'awaits')
  return rank(job.rules.priority, turn % 17592186044416)
end

-- The rank of a scheduled job that is queued. If it was suspended, its sleep is over, or the event did not come in time.
local function due_rank(job)
  local kind, name, turn = wait_of(job)
  if not kind then return rank(job.rules.priority, next_seq(1)) end
  if kind == 'call' then                    -- the task runs, and waits again
    call('HDEL', job.hash, 'awaits')
    return rank(job.rules.priority, turn % 17592186044416)
  end
  return end_wait(job, name, kind == 'sleep' and 'sleep' or 'timeout', kind == 'sleep' and 'null' or '', turn)
end

-- The names of the fields with a job's kept steps, each followed by the field's value.
local function step_fields(job)
  local fields, cursor = {}, '0'
  repeat
    local page = call('HSCAN', job.hash, cursor, 'MATCH', 'step:*', 'COUNT', STEPS)
    for _, word in ipairs(page[2]) do fields[#fields + 1] = word end
    cursor = page[1]
  until cursor == '0' or #fields > 4 * STEPS
  return fields
end

-- Forget a job's kept steps, and its wait.
local function forget_steps(job)
  local names, fields = {'steps', 'awaits'}, steps_of(job) > 0 and step_fields(job) or {}
  for i = 1, #fields, 2 do names[#names + 1] = fields[i] end
  call('HDEL', job.hash, unpack(names))
end
-- luacheck: pop
