"""`POST /jobs/{id}/suspend` and `POST /jobs/suspend`: end attempts whose tasks wait."""

from sublet import model
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import Suspension, SuspensionBatch


async def suspend(call: Call[Suspension, Empty]) -> Response:
    """End a waiting task's attempt, using no try. Its job runs again after a time, a signal or a called job."""
    return await settle_one(call, _suspension(call.path["id"], call.body))


async def suspend_batch(call: Call[SuspensionBatch, Empty]) -> Response:
    """End many attempts whose tasks wait, each independently."""
    return await settle_all(call, [_suspension(item.id, item) for item in call.body.jobs])


def _suspension(job_id: str, asked: Suspension) -> model.Suspension:
    seconds = asked.delay or 0.0 if asked.kind == "sleep" else asked.delay
    return model.Suspension(lease(job_id, asked.token), asked.kind, asked.name, seconds)
