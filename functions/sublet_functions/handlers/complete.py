"""`POST /jobs/{id}/complete` (and `/done`), `POST /jobs/complete`: the work is done, here is the result."""

from sublet import model
from sublet.options import PAYLOAD_MAX
from sublet_functions.api.parsing import written
from sublet_functions.api.request import Call, Reply
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Completion, Completions


async def complete(call: Call[Completion, Nothing]) -> Reply:
    """Have a result accepted. The same again gets the same answer; after the lease was lost, 409."""
    result = written(call.body.result, PAYLOAD_MAX, "body", "result")
    return await settle_one(call, model.Completion(lease(call.words["id"], call.body.token), result))


async def complete_batch(call: Call[Completions, Nothing]) -> Reply:
    """Have many results accepted, each on its own."""
    return await settle_all(
        call,
        [
            model.Completion(
                lease(one.id, one.token), written(one.result, PAYLOAD_MAX, "body", "jobs", at, "result")
            )
            for at, one in enumerate(call.body.jobs)
        ],
    )
