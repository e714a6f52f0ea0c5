"""`POST /jobs/{id}/complete` (and `/done`), `POST /jobs/complete`."""

from sublet import model
from sublet.options import PAYLOAD_MAX
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Completion, CompletionBatch


async def complete(call: Call[Completion, Empty]) -> Response:
    """Complete a job with its result. Repeating the request returns the same response; 409 if the lease is
    lost.
    """
    result = stored_json(call.body.result, PAYLOAD_MAX, "body", "result")
    return await settle_one(call, model.Completion(lease(call.path["id"], call.body.token), result))


async def complete_batch(call: Call[CompletionBatch, Empty]) -> Response:
    """Complete many jobs independently; one invalid result refuses them all."""
    completions = []
    for at, item in enumerate(call.body.jobs):
        result = stored_json(item.result, PAYLOAD_MAX, "body", "jobs", at, "result")
        completions.append(model.Completion(lease(item.id, item.token), result))
    return await settle_all(call, completions)
