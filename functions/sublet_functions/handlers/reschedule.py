"""`POST /jobs/{id}/reschedule`."""

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import job_state
from sublet_functions.handlers.within import check_job
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Reschedule


async def reschedule(call: Call[Reschedule, Empty]) -> Response:
    """Move a scheduled or queued job to another time (409 if it waits for other jobs), change its priority,
    or both.
    """
    job_id, asked = call.path["id"], call.body
    await check_job(call)
    with invalid_at("body", model=Reschedule):
        plan = call.store.operations.reschedule(
            job_id, asked.revision, run_at=asked.run_at, delay=asked.delay, priority=asked.priority
        )
    return json_response(job_state(job_id, await call.store.follow(plan)))
