"""`POST /jobs/{id}/cancel`."""

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import JobAction


async def cancel(call: Call[JobAction, Empty]) -> Response:
    """Cancel a job. 200 if it waited; 202 if it runs: its worker ends it at a heartbeat; 409 if it ended."""
    job_id = call.path["id"]
    await check_job(call)
    answer = await call.store.follow(call.store.operations.cancel(job_id, call.body.revision))
    if answer == "requested":
        return json_response({"id": job_id, "state": "running"}, 202)
    return json_response({"id": job_id, "state": answer})
