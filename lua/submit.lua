-- submit: store jobs, queued or scheduled. If the id or key is in use, the answer is the job that exists.
--
-- LIBS  straight/submit.lua straight/submit_many.lua lib/base.lua lib/rules.lua lib/queue.lua lib/flow.lua lib/tags.lua lib/steps.lua lib/conflict.lua lib/intake.lua
-- KEYS  base         the partition's hash, e.g. {sublet:0}; every other key is base .. ":" .. name
-- ARGV  id queue task rules payload …   the jobs, in fives; rules are words, "" when all is default:
--                    priority=-100…100  delay=ms or at=ms since 1970  key=K [window=ms]  tries=N
--                    timeout=ms|none  stall=ms  retention=ms  backoff=first ms:factor:cap ms
--                    tags=T[,T…], up to 5  keep=1 (keep the payload after completion)
--                    group=G  cost=N (see configure)  trace=traceparent  digest=hexadecimal
--                    schedule=name  known=1 (store nothing: "NOT_FOUND" unless the id or key is in use)
--                    debounce=ms [at_most=ms] or on_conflict=replace|cancel_running, with a key
--                    onto=id (replace no other waiting job than this one)
-- REPLY array        one per job: "created", "exists <id>", "replaced <id>" (this waiting job has got the arguments),
--                    "holder <id>" (this job waits, and is not that of onto), "QUEUE_FULL …", "INVALID …" or "NOT_FOUND"
-- CODE  NO_NAMESPACE WRONG_LAYOUT TOO_MANY

needs('SET', key('key:'), '')
local refused_because = refused(#ARGV / 5, 200, 'scheduled')
if refused_because then return refused_because end
local answers = {}
for i = 1, #ARGV, 5 do answers[#answers + 1] = examine(unpack(ARGV, i, i + 4)) end
if #new_jobs == 0 and turned_away > 0 then begin() end      -- count them when memory is full, too
count('queue_full', turned_away)
if #new_jobs > 0 then store_jobs() end
return answers
