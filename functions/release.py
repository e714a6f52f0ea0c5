"""`POST /jobs/{id}/release`, `POST /jobs/release`: give jobs back unfinished; the try is given back, too."""

from functions.bodies import Release, Releases
from functions.call import Call, Reply
from functions.held import lease, settle_all, settle_one
from functions.queries import Nothing
from jobs import model


async def release(call: Call[Release, Nothing]) -> Reply:
    """Give a job back, to its old place or after a delay."""
    return await settle_one(call, model.Release(lease(call.words["id"], call.body.token), call.body.delay, call.body.reason))


async def release_batch(call: Call[Releases, Nothing]) -> Reply:
    """Give many jobs back, each on its own."""
    return await settle_all(call, [model.Release(lease(one.id, one.token), one.delay, one.reason) for one in call.body.jobs])
