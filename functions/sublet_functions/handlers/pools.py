"""`/pools`: for which queues workers are summoned, how many are wanted, and why."""

from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.scaling.invokers import check_pool
from sublet_functions.api.parsing import telling
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.schemas.pools import PoolWish
from sublet_functions.schemas.query import Nothing


async def list_pools(call: Call[Nothing, Nothing]) -> Reply:
    """All pools, each with the sum behind its number of workers. Nothing is summoned by looking."""
    found = await call.store.follow(pools.look_at_all(call.store.operations.bases))
    return json_reply({"pools": [pool.shown for pool in found]})


async def get_pool(call: Call[Nothing, Nothing]) -> Reply:
    """One pool, with its sum: autoscalers may read `sum.wanted`."""
    return json_reply(await _found(call.store.operations.bases, call))


async def put_pool(call: Call[PoolWish, Nothing]) -> Reply:
    """Have a pool be like this, whether it is there or not. The same again changes nothing."""
    said, bases = call.body, call.store.operations.bases
    wish = Pool(name=call.words["name"], **said.model_dump(exclude={"revision"}))
    with telling("body"):
        check_pool(wish)
        answer = await call.store.follow(pools.put(bases, wish, said.revision))
    return json_reply(await _found(bases, call), 201 if answer == "created" else 200)


async def delete_pool(call: Call[Nothing, Nothing]) -> Reply:
    """Summon nobody for it any more; those that were summoned finish what they run, and go. Gone already: nothing happens."""
    await call.store.follow(pools.remove(call.store.operations.bases, call.words["name"]))
    return Reply(204)


async def _found(bases: list[str], call: Call[PoolWish, Nothing] | Call[Nothing, Nothing]) -> Pool:
    (found,) = await call.store.follow(pools.look_at_all(bases, call.words["name"]))
    return found.shown
