"""`POST /jobs/{id}/release` and `POST /jobs/release`: give jobs back."""

from sublet import model
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Release, ReleaseBatch


async def release(call: Call[Release, Empty]) -> Response:
    """Give a job back: to its old position in the queue, or after a delay. After 100 in a row, the next uses
    a try; the 20th as `unknown_task` makes the job dead.
    """
    return await settle_one(call, _release(call.path["id"], call.body))


async def release_batch(call: Call[ReleaseBatch, Empty]) -> Response:
    """Give many jobs back, each independently."""
    return await settle_all(call, [_release(item.id, item) for item in call.body.jobs])


def _release(job_id: str, release: Release) -> model.Release:
    return model.Release(lease(job_id, release.token), release.delay, release.reason, release.code)
