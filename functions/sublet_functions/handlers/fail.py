"""`POST /jobs/{id}/fail` and `POST /jobs/fail`: report failed attempts."""

from sublet import model
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Failure, FailureBatch


async def fail(call: Call[Failure, Empty]) -> Response:
    """Report a failed attempt. If a cancel was requested, the job is cancelled. Else it waits for its backoff
    while tries are left and `again` is true; otherwise it is dead.
    """
    return await settle_one(call, _failure(call.path["id"], call.body))


async def fail_batch(call: Call[FailureBatch, Empty]) -> Response:
    """Report many failed attempts, each independently."""
    return await settle_all(call, [_failure(item.id, item) for item in call.body.jobs])


def _failure(job_id: str, failure: Failure) -> model.Failure:
    return model.Failure(
        lease(job_id, failure.token), failure.code, failure.message, failure.detail, failure.again
    )
