"""`POST /jobs/{id}/retry`: revive a dead or cancelled job."""

from functions.bodies import Order
from functions.call import Call, Reply
from functions.queries import Nothing
from functions.reply import json_reply


async def retry(call: Call[Order, Nothing]) -> Reply:
    """Revive a dead or cancelled job, with all its tries."""
    job_id = call.words["id"]
    state = await call.store.follow(call.store.layout.retry(job_id, call.body.revision))
    return json_reply({"id": job_id, "state": state})
