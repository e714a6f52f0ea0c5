-- Time passes: every moment that is stored under a base (KEYS[1]) moves ARGV[1] ms into the past.
local base, ms = KEYS[1], tonumber(ARGV[1])
redis.call('DEL', base .. ':')              -- so that time passes on a full server too
local function earlier(text) return string.format('%.0f', text - ms) end
for _, state in ipairs({'scheduled', 'running', 'completed', 'dead', 'cancelled', 'workers'}) do
  local key = base .. ':' .. state
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ms, id) end
end
for _, key in ipairs(redis.call('KEYS', base .. ':*')) do
  local ttl = redis.call('PTTL', key)
  if key == base .. ':alarm' then
    local at, rest = string.match(redis.call('GET', key), '^(%d+)( .*)$')
    redis.call('SET', key, earlier(at) .. rest, 'KEEPTTL')
  end
  if ttl >= 0 and ttl <= ms then redis.call('DEL', key) end
  if ttl > ms then redis.call('PEXPIRE', key, ttl - ms) end
  if string.find(key, ':job:', 1, true) or string.find(key, ':worker:', 1, true) then
    for _, field in ipairs({'claimed_at', 'heartbeat_at', 'finished_at', 'cancel_requested_at', 'enlisted_at', 'drain'}) do
      local at = redis.call('HGET', key, field)
      if at then redis.call('HSET', key, field, earlier(at)) end
    end
  end
end
