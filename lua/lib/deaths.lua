-- lib/deaths: the reports of dead jobs (on_dead). It needs base, queue, flow and edges.
-- luacheck: push ignore 211
-- The queue and the task of the jobs that report deaths in a queue (on_dead); nil without the setting. The queue's
-- own setting is used before the partition's. A setting that names no queue means the queue itself.
local function death_hook(queue)
  local value = string.match(queue.settings or '', ' on_dead=(%S+)') or string.match(partition or '', ' on_dead=(%S+)')
  if not value then return nil end
  local other, task = string.match(value, '^([^/]+)/(.+)$')
  return other or queue.name, task or value
end

-- A job by its id. Its queue is read as well, so that the job may be moved there, and the queue of a report of its death.
local function load_movable(id)
  local job = load(id)
  local reports = job.state and death_hook(get_queue(job.rules.queue))
  if reports then get_queue(reports) end
  if job.state then check_flow(job) end
  if job.state and is_linked(job) then edges().look(job) end
  return job
end

-- Queue the job that reports a death (on_dead), above any limit. Its id is computed from the dead job's id and the
-- attempt's token. With the rule `death`, its own death is not reported.
local HOOK_TRIES = 20                       -- with the usual backoff, about an hour
local function report_death(job, code, place)
  local dead = job.rules
  local name, task = death_hook(get_queue(dead.queue))
  if not name or dead.death then return end
  local id = (string.match(base, '(%d+)}$') or '0') .. '-dead-' .. digest_of(job.id .. ' ' .. (job.token or ''))
  if call('EXISTS', key('job:', id)) == 1 then return end
  local function safe(text) return (string.gsub(text, '[^%w_.:-]', '?')) end
  local payload = '{"id":"' .. safe(job.id) .. '","queue":"' .. safe(dead.queue) .. '","task":"' .. safe(dead.task)
    .. '","code":"' .. safe(code) .. '","attempts":' .. job.attempt .. '}'
  local header = name .. ' ' .. task .. ' ' .. stamp .. ' tries=' .. HOOK_TRIES .. ' death=' .. safe(job.id)
  local queue, hook = get_queue(name), {id = id, hash = key('job:', id), rules = read_header(header)}
  if not queue.settings then
    call('HSET', key('queues'), name, '')
    queue.settings = ''
  end
  backlog(name, 1, #payload)
  place(hook, 'queued', rank(0, next_seq(1)), 'on_dead', as_spec(header, payload))
  count('submitted', 1)
end
-- luacheck: pop
