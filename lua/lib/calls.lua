-- lib/calls: steps that call other jobs. A called job has an edge to its caller, "<caller> <step>"; its end keeps the step.
-- It needs base, queue, flow and steps.
-- luacheck: push ignore 211
-- Before the first write: read the caller of such an edge; nil for the edge of a workflow.
local function read_caller(edge)
  local job = load(string.match(edge, '^(%S+) %S+$'))
  if job.state then
    get_queue(job.rules.queue)
    check_flow(job)
  end
  return job.id
end

-- The value of the step when its job has ended: id and state, a newline, result or error.
local function outcome_of(job, from, name)
  local body = from.state == 'completed' and call('HGET', from.hash, 'result')
  local ended_as, room = from.state, body and #name + #from.id + #body or 0
  if body and #body > STEP_MAX then
    ended_as, body = 'refused', 'its result has ' .. #body .. ' bytes, and a call takes ' .. STEP_MAX
      .. ': let it store the data elsewhere, and return the address'
  elseif room > 0 and steps_full(job, 0, room) then
    ended_as, body = 'refused', 'its result has no room: ' .. steps_full(job, 0, room)
  end
  return from.id .. ' ' .. ended_as .. '\n' .. (body or call('HGET', key('job:', from.id), 'error') or '')
end

-- The called job has ended, or (`lives`) was retried: keep its end as the step of its caller, which runs on if it waits for
-- that; or open the step again. A step that is not, or no longer, of this call stays as it is.
local function settle_call(edge, from, lives, place)
  local id, name = string.match(edge, '^(%S+) (%S+)$')
  local job = load(id)
  local kind, called = string.match(job.state and kept_step(job, name) or '', '^%d+ (%l+)\n(%S+)')
  if called ~= from.id or kind ~= (lives and 'called' or 'call') then return end
  if lives then
    call('RPUSH', key('downstream:', from.id), edge)
    return keep_step(job, name, 'call', from.id)
  end
  if from.state ~= 'completed' then call('RPUSH', key('broken:', from.id), edge) end
  local outcome = outcome_of(job, from, name)
  local _, awaited, turn = wait_of(job)
  if awaited ~= name then return keep_step(job, name, 'called', outcome) end
  call('ZREM', key('scheduled'), id)
  place(job, 'queued', end_wait(job, name, 'called', outcome, turn), 'called', 'ready_at', stamp)
end
-- luacheck: pop
