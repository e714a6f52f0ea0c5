-- Time passes: every moment that is stored under a base (KEYS[1]) moves ARGV[1] ms into the past.
local base, ms = KEYS[1], tonumber(ARGV[1])
redis.call('DEL', base .. ':')              -- so that time passes on a full server too
local function earlier(text) return string.format('%.0f', text - ms) end
for _, state in ipairs({'scheduled', 'running', 'completed', 'dead', 'cancelled', 'workers', 'catalogue'}) do
  local key = base .. ':' .. state
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ms, id) end
end
for _, key in ipairs(redis.call('KEYS', base .. ':*')) do
  if string.find(key, ':schedules$') or string.find(key, ':crew:', 1, true) or string.find(key, ':summons:', 1, true)
      or string.find(key, ':owner:', 1, true) then
    for _, name in ipairs(redis.call('ZRANGE', key, '-inf', '(99999999999999', 'BYSCORE')) do
      local guest = tonumber(redis.call('ZSCORE', key, name)) < 0
      redis.call('ZINCRBY', key, guest and ms or -ms, name)
    end
  end
  local ttl = redis.call('PTTL', key)
  local kind_of = string.match(key, '^' .. string.gsub(base, '%p', '%%%0') .. ':(%a+):')
  if kind_of == 'tokens' then
    for _, group in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ms, group) end
  elseif kind_of == 'tat' then
    redis.call('SET', key, string.format('%.17g', redis.call('GET', key) - ms), 'KEEPTTL')
  elseif kind_of == 'flow' then
    for _, field in ipairs({'alarm', 'cursors'}) do
      local text = redis.call('HGET', key, field)
      if text then redis.call('HSET', key, field, (string.gsub(text, '^%d+', earlier))) end
    end
  end
  if key == base .. ':alarm' then
    local at, rest = string.match(redis.call('GET', key), '^(%d+)( .*)$')
    redis.call('SET', key, earlier(at) .. rest, 'KEEPTTL')
  end
  if ttl >= 0 and ttl <= ms then redis.call('DEL', key) end
  if ttl > ms then redis.call('PEXPIRE', key, ttl - ms) end
  local kind = string.sub(key, #base + 1)
  if string.find(kind, '^:job:') or string.find(kind, '^:worker:') or string.find(kind, '^:schedule:') or string.find(kind, '^:pool:') then
    local spec = string.find(kind, '^:job:') and redis.pcall('HGET', key, 'spec')
    local header, rest = string.match(type(spec) == 'string' and spec or '', '^([^\n]*)(.*)$')
    if string.find(header, ' debounce=', 1, true) or string.find(header, ' on_conflict=', 1, true) then
      header = string.gsub(string.gsub(header, '^(%S+ %S+ )(%d+)', function(words, at) return words .. earlier(at) end),
        ' at=(%d+)', function(at) return ' at=' .. earlier(math.max(at, ms)) end)
      redis.call('HSET', key, 'spec', header .. rest)
    end
    for _, field in ipairs({'claimed_at', 'heartbeat_at', 'finished_at', 'cancel_requested_at', 'enlisted_at', 'drain', 'occurrence', 'at',
      'came_at', 'fired_at', 'failed_at', 'changed_at', 'made_at'}) do
      local at = tonumber(redis.call('HGET', key, field) or nil)
      if at and at > 10 ^ 12 then redis.call('HSET', key, field, earlier(at)) end
    end
  end
end
for _, ring in ipairs({base .. ':minutes', base .. ':hours'}) do
  local text = redis.pcall('GET', ring)
  for i = 0, type(text) == 'string' and #text - 128 or -1, 128 do
    local at = tonumber(string.sub(text, i + 1, i + 13))
    if at then redis.call('SETRANGE', ring, i, string.format('%13.0f', at - ms)) end
  end
end
local sampled = redis.call('HGET', base, 'sampled')
if sampled then redis.call('HSET', base, 'sampled', (string.gsub(sampled, '^%d+', earlier))) end
local replaced = redis.call('HGET', base, 'replaced')
if replaced then
  redis.call('HSET', base, 'replaced', (string.gsub(replaced, '(%S+ )(%d+)', function(life, at) return life .. earlier(at) end)))
end
