"""`POST /jobs/{id}/cancel`: call a job off."""

from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Order


async def cancel(call: Call[Order, Nothing]) -> Reply:
    """Call a job off: 200 and `cancelled`, or 202 when it runs: its worker hears of it at its next heartbeat."""
    job_id = call.words["id"]
    answer = await call.store.follow(call.store.operations.cancel(job_id, call.body.revision))
    if answer == "requested":
        return json_reply({"id": job_id, "state": "running"}, 202)
    return json_reply({"id": job_id, "state": answer})
