"""`POST /jobs/{id}/fail`, `POST /jobs/fail`: the attempt came to nothing."""

from functions.bodies import Failure, Failures
from functions.call import Call, Reply
from functions.held import lease, settle_all, settle_one
from functions.queries import Nothing
from jobs import model


async def fail(call: Call[Failure, Nothing]) -> Reply:
    """Record why. The job is tried again after its backoff while it has tries left, else it is dead."""
    return await settle_one(call, _failure(call.words["id"], call.body))


async def fail_batch(call: Call[Failures, Nothing]) -> Reply:
    """Record many failures, each on its own."""
    return await settle_all(call, [_failure(one.id, one) for one in call.body.jobs])


def _failure(job_id: str, said: Failure) -> model.Failure:
    return model.Failure(lease(job_id, said.token), said.code, said.message, said.detail, said.again)
