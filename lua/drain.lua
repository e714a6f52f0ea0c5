-- drain: ask a worker to finish its jobs, claim no more, and exit. Its next enlist returns the request.
--
-- LIBS  lib/base.lua lib/audit.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  worker       its name
-- ARGV  life         the one that the caller saw: a worker that was restarted since is not asked
-- ARGV  by           a person's name, for the audit; "" (or left out): nothing is recorded
-- REPLY string       "drain"
-- CODE  NO_NAMESPACE WRONG_LAYOUT NOT_FOUND CHANGED

local worker, life, by = tostring(ARGV[1]), ARGV[2], ARGV[3]
local refused_because = refused(1, 1)
if refused_because then return refused_because end
local card = key('worker:' .. worker)
local current = call('HGET', card, 'life')
if not current then return refusal('NOT_FOUND', 'no worker ' .. worker .. ' is registered') end
if current ~= life then return refusal('CHANGED', 'worker ' .. worker .. ' was restarted: read it again') end
check_audit(by)

begin()
if call('HSETNX', card, 'drain', stamp) == 1 then audit(by, 'drain', worker, '', 'requested') end
return 'drain'
