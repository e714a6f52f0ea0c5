-- enlist: register a worker, or renew its registration, and return whether it was asked to drain.
--
-- LIBS  lib/base.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  worker       its name
-- ARGV  life         a word of its own choice, a new one at each start
-- ARGV  worker_id    its exclusive identity, "" for none: a worker that enlists with it takes over from the
--                    previous holder
-- ARGV  about        its description, at most 4 KiB; only "queues": ["a", "b"], the queues it serves, is read
--                    here, and "started" checked: a whole number (or null)
-- ARGV  pool         the pool that it works for, "" for none, or none any more
-- ARGV  summons      the one that started it (see summon), "" for none
-- ARGV  owner        whose live workers are counted together, at most 1,000: the API sends its token's name;
--                    "" for none. With an owner and without a summons that was open it is a guest of the pool
--                    (see summon), unless the pool's invoker is none
-- REPLY string       "work", or "drain": an operator asked for it; or it was summoned, and the pool needs it
--                    no more, or it does not serve all queues that the pool has now
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID
-- CODE  WORKERS_FULL   a new name, and as many live workers are registered as may be: 10,000, or the owner's

-- ms without a heartbeat after which a worker's registration is deleted
local FORGOTTEN = 86400000
-- ms without a heartbeat after which a worker does not count for its pool
local SILENT = 12000
local ABOUT_MAX = 4096                      -- bytes
local WORKERS = 10000                       -- registered workers; above, those that are not live are deleted
local OWNED = 1000                          -- live workers of one owner
local LIVE = 60000                          -- ms without a heartbeat after which a worker is not live
local worker, life, worker_id, about, pool, summons = unpack(ARGV, 1, 6)
local owner = ARGV[7] or ''
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local named = is_name(worker) and is_name(life) and (worker_id == '' or is_name(worker_id))
  and (pool == '' or is_name(pool)) and (summons == '' or pool ~= '' and is_name(summons))
  and (owner == '' or is_name(owner))
if not named or #about > ABOUT_MAX then
  return refusal('INVALID', 'worker, life, worker_id, pool, summons and owner: use names of 1 to 128 of ' .. NAME .. '; '
    .. 'a summons needs a pool; the description `about` may have ' .. ABOUT_MAX .. ' bytes')
end
-- The takeover compares it with /proc: text would count as no start at all
local started = string.match(about, '"started"%s*:%s*([^,}%s]*)')
if started and started ~= 'null' and not string.find(started, '^%d+$') then
  return refusal('INVALID', 'about: started is a whole number (field 22 of /proc/PID/stat) or null, not '
    .. string.sub(started, 1, 40))
end
local card = key('worker:' .. worker)
local before, orders, crew, brought = unpack(call('HMGET', card, 'life', 'drain', 'pool', 'summoned'))
local crowded_out = call('ZCARD', key('workers')) >= WORKERS
local owned = key('owner:' .. owner)
local live = owner == '' and 0 or call('ZCOUNT', owned, now - LIVE, '+inf')
local crew_key, summons_key, memory = key('crew:' .. pool), key('summons:' .. pool), key('pool:' .. pool)
local settings = pool ~= '' and string.match(call('HGET', key('pools'), pool) or '', '^%d+( [^\n]*)\n')
local names = string.match(settings or '', ' queues=(%S+)')
local said = string.match(about, '"queues":%s*%[([^%]]*)%]')
local serves = names ~= nil
for queue in string.gmatch(said and names or '', '[^,]+') do
  serves = serves and string.find(said, '"' .. queue .. '"', 1, true) ~= nil
end
local known = before == life and crew == pool
local most = tonumber(string.match(settings or '', ' max=(%d+)') or 10)
local member = serves and call('ZSCORE', crew_key, worker) and known
-- its summons may have expired: it is still needed if the pool lacks workers
local expires = serves and tonumber(call('ZSCORE', summons_key, summons) or 0) or 0
-- Anybody with a token can register names; a summons is a secret of the invoker and its worker
local guest = serves and owner ~= '' and expires <= now and not (before == life and brought == pool)
  and not string.find(settings, ' invoker=none', 1, true)
local asked = serves and tonumber(call('HGET', memory, 'wanted') or 0) or 0
local wanted = math.min(most, (expires > now or known) and most or asked)
local short = serves and call('ZCOUNT', crew_key, now - SILENT, now + SILENT) < wanted
local needed = serves and (summons == '' or member or short)

if before then
  begin()
elseif crowded_out and call('ZCOUNT', key('workers'), now - LIVE, '+inf') >= WORKERS then
  return refusal('WORKERS_FULL', WORKERS .. ' live workers are registered, the most: end some of them')
elseif live >= OWNED then
  return refusal('WORKERS_FULL', owner .. ' has ' .. OWNED .. ' live workers, the most of one token: use another')
end
-- The first write of a new registration: a full server, or one that denies this user the right, refuses it
call('HSETNX', card, 'enlisted_at', stamp)
if before ~= life then call('DEL', card) end
call('HSET', card, 'life', life, 'worker_id', worker_id, 'about', about)
call('HSETNX', card, 'enlisted_at', stamp)  -- again: it was deleted with the earlier life
call('ZADD', key('workers'), now, worker)
if owner ~= '' then
  call('HSET', card, 'owner', owner)
  call('ZADD', owned, now, worker)
  call('ZREMRANGEBYSCORE', owned, '-inf', now - LIVE)
  call('PEXPIRE', owned, LIVE)
end
local silent = call('ZRANGE', key('workers'), '-inf', now - (crowded_out and LIVE or FORGOTTEN), 'BYSCORE',
  'LIMIT', 0, 10)
for _, name in ipairs(silent) do call('DEL', key('worker:' .. name)) end
if #silent > 0 then call('ZREM', key('workers'), unpack(silent)) end
if needed then
  call('HSET', card, 'pool', pool)
  call('ZADD', crew_key, guest and '-' .. stamp or stamp, worker)
  call('ZREMRANGEBYSCORE', crew_key, FORGOTTEN - now, now - FORGOTTEN)
  if expires > now then call('HSET', card, 'summoned', pool) end
  if summons ~= '' and not member and not guest then
    if call('ZREM', summons_key, summons) == 0 then call('ZPOPMAX', summons_key) end
    if not known then add(memory, 'arrived', 1) end
  end
end
if crew and before == life and not needed then      -- it works for another pool, or drains: do not count it
  peek('ZREM', key('crew:' .. crew), worker)
  call('HDEL', card, 'pool')
end
return (before == life and orders or summons ~= '' and not needed) and 'drain' or 'work'
