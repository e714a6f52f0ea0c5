"""`POST /jobs/{id}/erase`: delete a finished job."""

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import JobAction


async def erase(call: Call[JobAction, Empty]) -> Response:
    """Delete a finished job for good; 409 for an unfinished one, 404 if repeated. Old events keep its id."""
    job_id = call.path["id"]
    await check_job(call)
    answer = await call.store.erase(job_id, call.body.revision)
    return json_response({"id": job_id, "state": answer})
