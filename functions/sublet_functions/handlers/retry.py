"""`POST /jobs/{id}/retry`: revive a dead or cancelled job."""

from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Order


async def retry(call: Call[Order, Nothing]) -> Reply:
    """Revive a dead or cancelled job, with all its tries."""
    job_id = call.words["id"]
    state = await call.store.follow(call.store.operations.retry(job_id, call.body.revision))
    return json_reply({"id": job_id, "state": state})
