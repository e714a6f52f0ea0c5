"""`POST /jobs/{id}/promote`: queue a scheduled job now."""

from functions.bodies import Order
from functions.call import Call, Reply
from functions.queries import Nothing
from functions.reply import json_reply


async def promote(call: Call[Order, Nothing]) -> Reply:
    """Queue a scheduled job now, whatever it was waiting for."""
    job_id = call.words["id"]
    state = await call.store.follow(call.store.layout.promote(job_id, call.body.revision))
    return json_reply({"id": job_id, "state": state})
