"""`POST /jobs/{id}/proceed`: complete a job, and store the jobs that follow it."""

from typing import Any

from sublet import model
from sublet.errors import QueueFull
from sublet.model import Submission
from sublet.options import PAYLOAD_MAX
from sublet.workflows import following
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.call_job import check_submits
from sublet_functions.handlers.leases import job_state, lease
from sublet_functions.handlers.submit import known_tasks, submission
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.body import stored_json
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import Continuation


async def proceed(call: Call[Continuation, Empty]) -> Response:
    """Complete a job, and store the jobs that follow, both or neither. With queue-full the job still runs:
    repeat the request. If Redis refuses the jobs that follow for another reason, the job is dead.
    """
    job_id, asked = call.path["id"], call.body
    check_submits(call)
    result = stored_json(asked.result, PAYLOAD_MAX, "body", "result")
    jobs, callback = await _following(call)
    held = lease(job_id, asked.token)
    wanted = model.Following(asked.workflow, tuple(jobs), callback, asked.on_failure)
    with invalid_at("body", "jobs"):
        following.check(job_id, wanted)
    completion = model.Completion(held, result, wanted)
    (answer,) = await call.store.settle([completion])
    if answer.startswith("QUEUE_FULL "):
        raise QueueFull(answer.partition(" ")[2])
    ended, state = following.stored(completion, answer)
    (word,) = await lease_answers(call, [job_id], [state])
    reason = {"reason": ended.message} if isinstance(ended, model.Failure) else {}
    return json_response(job_state(job_id, word) | reason)


async def _following(call: Call[Continuation, Any]) -> tuple[list[Submission], Submission | None]:
    new = [*call.body.jobs, *([call.body.callback] if call.body.callback else [])]
    known = await known_tasks(call, new)
    made = [submission(call, job, None, known, at)[0] for at, job in enumerate(call.body.jobs)]
    if call.body.callback is None:
        return made, None
    return made, submission(call, call.body.callback, None, known, place=("callback",))[0]
