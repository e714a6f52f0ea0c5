-- lib/members: how a workflow counts its members, and when it has ended. It needs base and queue. Its functions are made at the
-- first use.
-- luacheck: push ignore 211
local function membership()
  local M = {COUNTED_AS = {completed = 1, dead = 2, cancelled = 3}}    -- the score of a member by its state, 0 for the others
  membership = function() return M end      -- it is made once

  -- Is a completed member still to restore edges, so that cancelled ones come back?
  function M.restore(set)
    local found = peek('ZINTER', 2, set, key('unsettled'), 'WEIGHTS', 1, 0, 'WITHSCORES')
    for i = 1, #found, 2 do
      if tonumber(found[i + 1]) == M.COUNTED_AS.completed and peek('EXISTS', key('broken:', found[i])) == 1 then return true end
    end
  end

  -- Publish the id of a workflow that has ended.
  function M.end_now(workflow)
    local about = key('workflow:', workflow)
    call('HSET', about, 'ended_at', stamp)
    call('PUBLISH', key('ended'), workflow)
    for _, name in ipairs({about, key('members:', workflow)}) do peek('PEXPIRE', name, KEEP_DEAD) end
  end

  -- A workflow has ended when it is sealed, and each member has, and none is to come back.
  function M.check_end(workflow)
    local state, set = peek('HGET', key('workflow:', workflow), 'state'), key('members:', workflow)
    local is_over = (state == 'sealed' or state == 'cancelled') and peek('ZCOUNT', set, 0, 0) == 0
    if is_over and not M.restore(set) then M.end_now(workflow) end
  end

  -- A member has ended, or is unfinished again.
  function M.note(job)
    local workflow, counted_as = job.rules.workflow, M.COUNTED_AS[job.state]
    local set, about = key('members:', workflow), key('workflow:', workflow)
    peek('ZADD', set, 'XX', counted_as or 0, job.id)
    if counted_as then return M.check_end(workflow) end
    for _, name in ipairs({set, about}) do peek('PERSIST', name) end
    peek('HDEL', about, 'ended_at')
  end
  return M
end
-- luacheck: pop
