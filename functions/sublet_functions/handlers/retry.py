"""`POST /jobs/{id}/retry`: queue a dead or cancelled job again."""

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Retry


async def retry(call: Call[Retry, Empty]) -> Response:
    """Retry a dead or cancelled job: queue it, or let it wait for other jobs again, with all its tries. It
    keeps its steps unless `anew`.
    """
    job_id = call.path["id"]
    await check_job(call)
    state = await call.store.follow(
        call.store.operations.retry(job_id, call.body.revision, anew=call.body.anew)
    )
    return json_response({"id": job_id, "state": state})
