"""`POST /jobs/{id}/call`: store a job as a step of a running one."""

from typing import Any

from sublet.errors import LeaseLost, NoNamespace, NotFound
from sublet.steps.calls import CalledJob
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, lease_problem
from sublet_functions.handlers.step import shown_step
from sublet_functions.handlers.submit import known_tasks, submission
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.auth import Role
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import CallRequest


async def call_job(call: Call[CallRequest, Empty]) -> Response:
    """Store a job as a step of a running job, once, and return the step, of kind `call` until the stored job
    has ended. To wait for its end, suspend the running job with this kind.
    """
    job_id, asked = call.path["id"], call.body
    check_submits(call)
    job, _ = submission(call, asked.job, None, await known_tasks(call, [asked.job]), place=("job",))
    try:
        kept = await call.store.call(lease(job_id, asked.token), CalledJob(asked.step, job))
    except (LeaseLost, NotFound) as error:
        (word,) = await lease_answers(call, [job_id], [error.code])
        raise lease_problem(job_id, word) from None
    except NoNamespace:
        raise lease_problem(job_id, "NOT_FOUND") from None
    return json_response({"id": job_id, "step": shown_step(kept)})


def check_submits(call: Call[Any, Any]) -> None:
    """Raise Problem unless the token may submit jobs."""
    if not call.principal.roles & {Role.SUBMIT, Role.ADMIN}:
        raise Problem(
            "forbidden",
            f"the token of {call.principal.name} has no role submit, which this request needs besides work",
        )
