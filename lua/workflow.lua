-- workflow: store jobs that wait for others, all of them or none; seal or cancel the workflow that they belong to.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/conflict.lua lib/intake.lua lib/edges.lua lib/links.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  workflow     its id, of which the jobs become members; "" for jobs without a workflow
-- ARGV  how          "seal": the workflow is whole, its jobs start. "open": more calls follow, and they wait for "seal", for at
--                    most an hour. "cancel": cancel the jobs of an open one. Without a workflow "seal"
-- ARGV  id queue task rules payload after into …   the jobs, in sevens, at most 200. Rules as of submit, without key, and:
--                    on_failure=cancel|run|hold (if an upstream does not succeed; cancel unless given)
--                    give_up=ms (cancel it when it has waited for so long). after: ids of the jobs that it waits for,
--                    its upstreams, with spaces between: jobs above, or unfinished ones. into: ids of jobs that wait, and
--                    wait for this one, too. At most 500 ids in all
-- REPLY array        one per job: "created", or "exists <id>" (it is a member already); or only one item, a refusal, and
--                    nothing is stored: "QUEUE_FULL …", "INVALID …", "NOT_FOUND …" or "WRONG_STATE …"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

local SEAL_WITHIN = 3600000                 -- ms in which a workflow must be sealed
local workflow, how = ARGV[1], ARGV[2]
local refused_because = refused((#ARGV - 2) / 7, 200)
if refused_because then return refused_because end
local all, about, members = edges(), key('workflow:', workflow), key('members:', workflow)
local is_flow = workflow ~= ''
if is_flow and (#workflow > 64 or not is_name(workflow)) or not is_flow and how ~= 'seal'
    or not (how == 'seal' or how == 'open' or how == 'cancel' and #ARGV == 2) then
  return {'INVALID workflow: use an id of 1 to 64 of ' .. NAME .. '; how: seal, open, or cancel without jobs'}
end
local state = is_flow and call('HGET', about, 'state')
call('ZCARD', members)
if not state and how == 'cancel' then return {'NOT_FOUND no workflow ' .. workflow} end
local itself = all.upstream('/' .. workflow)
if state == 'open' and how ~= 'open' then all.look(itself) end

local answers = {}
for i = 3, #ARGV, 7 do
  local answer, is_refused = examine_linked(workflow, how == 'open', unpack(ARGV, i, i + 6))
  if is_refused then return {answer} end
  answers[#answers + 1] = answer
end
if edge_count > EDGES then return {'INVALID edges: a call takes up to ' .. EDGES .. ', not ' .. edge_count} end
local late = state == 'cancelled' and (how == 'seal' or #new_jobs > 0) and 'was cancelled, or not sealed within an hour'
  or state == 'sealed' and (how == 'cancel' or how == 'open' and #new_jobs > 0) and 'is sealed'
  or state == 'sealed' and #new_jobs > 0 and call('ZCOUNT', members, 0, 0) == 0 and 'has ended'
if late then return {'WRONG_STATE workflow ' .. workflow .. ' ' .. late} end

begin()
if is_flow and not state then
  call('HSET', about, 'created_at', stamp, 'state', how == 'open' and how or 'sealed')
  if how == 'open' then call('ZADD', key('scheduled'), digits(now + SEAL_WITHIN), '>' .. itself.id) end
end
if #new_jobs > 0 then store_linked(workflow) end
if state == 'open' and how ~= 'open' then
  itself.state = how == 'seal' and 'completed' or 'cancelled'
  call('HSET', about, 'state', how == 'seal' and 'sealed' or 'cancelled')
  call('ZREM', key('scheduled'), '>' .. itself.id)
  all.settle(itself, place)
end
if is_flow then all.check_end(workflow) end
return answers
