-- lib/leases: what a claim needs: whether it may take jobs, its token, and how earlier attempts ended. It needs
-- base and queue.
-- luacheck: push ignore 211
-- Does a claim id begin with a life that was reconciled?
local function is_barred(claim_id)
  for life, ends in string.gmatch(replaced or '', '(%S+) (%d+)') do
    if tonumber(ends) > now and string.sub(claim_id, 1, #life + 1) == life .. '.' then return true end
  end
end

-- The number at the start of a token. It always grows, even when a failover lost writes.
local function new_fence()
  begin()
  local fence = math.max((tonumber(call('HGET', base, 'fence') or 0) or 0) + 1, time[1] * 1000000 + time[2])
  call('HSET', base, 'fence', string.format('%.0f', fence))
  return string.format('%.0f', fence)
end

-- How an earlier attempt ended, as a claim's reply has it.
local function history(id, n, tries_left)
  local last, streak, kept = unpack(call('HMGET', key('job:', id), 'attempt:' .. n, 'streak', 'checkpoint'))
  local lost = string.find(streak or '', '^lease_expired ') and ' lost' or ''
  return (last and string.match(last, '^%S+ %S+ %S+ (%S+)') or '') .. ' ' .. tries_left .. lost
    .. (kept and '\n' .. kept or '')
end
-- luacheck: pop
