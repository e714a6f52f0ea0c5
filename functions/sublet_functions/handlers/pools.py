"""The routes of `/pools`: list, change and delete pools."""

from typing import Any

from sublet.errors import NotFound
from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.scaling.pool_check import check_pool
from sublet_functions.handlers.call import Call
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.pools import PoolSettings
from sublet_functions.schemas.query import Empty


async def list_pools(call: Call[Empty, Empty]) -> Response:
    """List the pools that the token may see, by name. Those among the namespace's first 100 have the calculation of their
    wanted workers. This summons no worker.
    """
    found = await call.store.follow(pools.look_at_all(call.store.operations.bases))
    return json_response(
        {"pools": [pool.shown for pool in found if _is_within(call, pool)]}, reads=5 * len(found)
    )


async def get_pool(call: Call[Empty, Empty]) -> Response:
    """Return one pool, with the calculation of its wanted workers. Autoscalers can use `sum.wanted`."""
    return json_response(await _pool(call))


async def put_pool(call: Call[PoolSettings, Empty]) -> Response:
    """Create or replace a pool. Repeating the request changes nothing."""
    settings = call.body
    pool = Pool(name=call.path["name"], **settings.model_dump(exclude={"revision"}))
    with invalid_at("body", model=PoolSettings):
        check_pool(pool)
        answer = await call.store.follow(pools.put(call.store.operations.bases, pool, settings.revision))
    return json_response(await _pool(call), 201 if answer == "created" else 200)


async def delete_pool(call: Call[Empty, Empty]) -> Response:
    """Delete a pool, if it exists: no further worker is summoned. Summoned workers finish their jobs and end."""
    await call.store.follow(pools.remove(call.store.operations.bases, call.path["name"]))
    return Response(204)


async def _pool(call: Call[Any, Any]) -> Pool:
    name = call.path["name"]
    (found,) = await call.store.follow(pools.look_at_all(call.store.operations.bases, name))
    if not _is_within(call, found):
        raise NotFound(f"no pool {name}")
    return found.shown


def _is_within(call: Call[Any, Any], pool: Pool) -> bool:
    scope = call.principal.scope
    return scope is None or all(queue in scope for queue in pool.queues)
