-- workflow: store jobs that wait for others, all of them or none; seal or cancel the workflow that they belong to.
--
-- LIBS  lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/conflict.lua lib/intake.lua lib/calls.lua lib/members.lua lib/edges.lua lib/links.lua lib/deaths.lua lib/surplus.lua lib/lifecycle.lua
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

local workflow, how = ARGV[1], ARGV[2]
local refused_because = refused((#ARGV - 2) / 7, 200)
if refused_because then return refused_because end
local is_flow = workflow ~= ''
if is_flow and (#workflow > 64 or not is_name(workflow)) or not is_flow and how ~= 'seal'
    or not (how == 'seal' or how == 'open' or how == 'cancel' and #ARGV == 2) then
  return {'INVALID workflow: use an id of 1 to 64 of ' .. NAME .. '; how: seal, open, or cancel without jobs'}
end
local answers, wrong = examine_workflow(workflow, how, 3)
if wrong then return {wrong} end
begin()
store_workflow(workflow, how, place)
sum_up()
return answers
