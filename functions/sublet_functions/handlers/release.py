"""`POST /jobs/{id}/release`, `POST /jobs/release`: give jobs back unfinished; the try is given back, too."""

from sublet import model
from sublet_functions.api.request import Call, Reply
from sublet_functions.handlers.leases import lease, settle_all, settle_one
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Release, Releases


async def release(call: Call[Release, Nothing]) -> Reply:
    """Give a job back, to its old place or after a delay."""
    return await settle_one(
        call, model.Release(lease(call.words["id"], call.body.token), call.body.delay, call.body.reason)
    )


async def release_batch(call: Call[Releases, Nothing]) -> Reply:
    """Give many jobs back, each on its own."""
    return await settle_all(
        call, [model.Release(lease(one.id, one.token), one.delay, one.reason) for one in call.body.jobs]
    )
