"""`POST /jobs/{id}/promote`: queue a scheduled job now."""

from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Order


async def promote(call: Call[Order, Nothing]) -> Reply:
    """Queue a scheduled job now, whatever it was waiting for."""
    job_id = call.words["id"]
    state = await call.store.follow(call.store.operations.promote(job_id, call.body.revision))
    return json_reply({"id": job_id, "state": state})
