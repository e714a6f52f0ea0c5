"""`POST /jobs/{id}/promote`."""

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import JobAction


async def promote(call: Call[JobAction, Empty]) -> Response:
    """Queue a scheduled job now, even if it waits for other jobs; 409 if it waits for a signal, or is in
    another state.
    """
    job_id = call.path["id"]
    await check_job(call)
    state = await call.store.follow(call.store.operations.promote(job_id, call.body.revision))
    return json_response({"id": job_id, "state": state})
