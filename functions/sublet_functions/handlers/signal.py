"""`POST /jobs/{id}/signal`: send a signal to a job."""

from sublet.steps.calls import STEP_MAX
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import Signal


async def signal(call: Call[Signal, Empty]) -> Response:
    """Keep a signal for an unfinished job, waiting or not (409 if the step has another value). A job that
    waits for it is queued.
    """
    job_id, asked = call.path["id"], call.body
    await check_job(call)
    value = stored_json(asked.value, STEP_MAX, "body", "value")
    state = await call.store.follow(call.store.operations.signal(job_id, asked.name, value))
    return json_response({"id": job_id, "state": state})
