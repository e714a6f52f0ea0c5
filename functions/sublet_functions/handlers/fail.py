"""`POST /jobs/{id}/fail`, `POST /jobs/fail`: the attempt came to nothing."""

from sublet import model
from sublet_functions.api.request import Call, Reply
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Failure, Failures


async def fail(call: Call[Failure, Nothing]) -> Reply:
    """Record why. The job is tried again after its backoff while it has tries left, else it is dead."""
    return await settle_one(call, _failure(call.words["id"], call.body))


async def fail_batch(call: Call[Failures, Nothing]) -> Reply:
    """Record many failures, each on its own."""
    return await settle_all(call, [_failure(one.id, one) for one in call.body.jobs])


def _failure(job_id: str, said: Failure) -> model.Failure:
    return model.Failure(lease(job_id, said.token), said.code, said.message, said.detail, said.again)
