-- enlist: a worker is here. Put it on the register, keep what it says of itself, and tell it whether it has been asked to go.
--
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  worker       its name
-- ARGV  life         a word of its own choice, another one each time it starts
-- ARGV  place        the exclusive place it holds, "" for none
-- ARGV  about        what it says of itself, opaque, at most 4 KiB
-- ARGV  pool         the pool whose work it does, "" for none, or none any more
-- ARGV  summons      what it was summoned by (see summon), "" if it came by itself
-- REPLY string       "work", or "drain": an operator has asked it to finish and go, or it was summoned and nobody waits for it any more
-- CODE  NO_NAMESPACE WRONG_LAYOUT INVALID

local FORGOTTEN, SILENT, ABOUT_MAX = 86400000, 12000, 4096 -- ms after which a silent worker is struck off, or is no crew; bytes
local worker, life, place_held, about, pool, summons = unpack(ARGV)
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local named = is_name(worker) and is_name(life) and (place_held == '' or is_name(place_held))
  and (pool == '' or is_name(pool)) and (summons == '' or pool ~= '' and is_name(summons))
if not named or #about > ABOUT_MAX then
  return refusal('INVALID', 'names are 1 to 128 of A-Z a-z 0-9 _ . : -, about is at most ' .. ABOUT_MAX .. ' bytes')
end
local card = key('worker:' .. worker)
local before, orders, crew = unpack(call('HMGET', card, 'life', 'drain', 'pool'))
call('ZCARD', key('workers'))
local wanted = pool ~= '' and tonumber(call('HGET', key('pool:' .. pool), 'wanted') or 0) or 0
local short = summons ~= '' and call('ZCOUNT', key('crew:' .. pool), now - SILENT, '+inf') < wanted -- who comes late is as good as another
local awaited = summons == '' or call('ZSCORE', key('summons:' .. pool), summons) or before == life and crew == pool or short
local needed = awaited and pool ~= '' and call('HEXISTS', key('pools'), pool) == 1
if pool ~= '' then call('ZCARD', key('crew:' .. pool)) end

begin()
call('ZADD', key('workers'), now, worker)
local silent = call('ZRANGE', key('workers'), '-inf', now - FORGOTTEN, 'BYSCORE', 'LIMIT', 0, 10)
for _, name in ipairs(silent) do call('DEL', key('worker:' .. name)) end
if #silent > 0 then call('ZREM', key('workers'), unpack(silent)) end
if before ~= life then call('DEL', card) end
call('HSET', card, 'life', life, 'place', place_held, 'about', about)
call('HSETNX', card, 'enlisted_at', stamp)
if needed then
  call('HSET', card, 'pool', pool)
  call('ZADD', key('crew:' .. pool), stamp, worker)
  call('ZREMRANGEBYSCORE', key('crew:' .. pool), '-inf', now - FORGOTTEN)
  if summons ~= '' and (before ~= life or crew ~= pool) then
    if call('ZREM', key('summons:' .. pool), summons) == 0 then call('ZPOPMAX', key('summons:' .. pool)) end
    add(key('pool:' .. pool), 'arrived', 1)
  end
end
if pool == '' and crew and before == life then      -- it takes nothing more, and must not be counted on while it finishes
  peek('ZREM', key('crew:' .. crew), worker)
  call('HDEL', card, 'pool')
end
return (before == life and orders or summons ~= '' and not needed) and 'drain' or 'work'
