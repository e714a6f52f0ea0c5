"""`/workers`."""

from typing import Any

from sublet import model
from sublet.errors import NotFound
from sublet.operations import pools, workers
from sublet_functions.handlers.call import Call
from sublet_functions.http.auth import Role
from sublet_functions.http.body import stored_json
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, LifeQuery, WorkersQuery
from sublet_functions.schemas.requests import ReconcileRequest, RetireRequest, WorkerRegistration

ABOUT_MAX = 4096
"""Most bytes of a worker's `about` as JSON."""


async def list_workers(call: Call[Empty, WorkersQuery]) -> Response:
    """List the registered workers, the latest heartbeat first: at most 1,000 with the jobs that they hold, or all
    without.
    """
    list_them = workers.workers if call.query.jobs else workers.everyone
    found = list_them(call.store.operations.bases)
    return json_response({"workers": await call.store.follow(found)})


async def enlist(call: Call[WorkerRegistration, Empty]) -> Response:
    """Register a worker, or renew its registration. Returns whether it was asked to finish its jobs and end."""
    name, body = call.path["name"], call.body
    await _authorize(call, name, body.life)
    about = stored_json({**body.about, "principal": call.principal.name}, ABOUT_MAX, "body", "about")
    card = model.Card(name, body.life, body.worker_id, about, body.pool, body.summons)
    return json_response({"drain": await call.store.enlist(card)})


async def leave(call: Call[Empty, LifeQuery]) -> Response:
    """Delete the registration of a worker that ends, unless another life has registered. Its leases, if any,
    expire.
    """
    name, life = call.path["name"], call.query.life
    worker = await _authorize(call, name, life)
    if worker:
        await call.store.leave(model.Card(name, life, "", b""))
        call.store.nudge(_queues(worker))  # its jobs may need another worker
    return Response(204)


async def retire(call: Call[RetireRequest, Empty]) -> Response:
    """Ask whether an idle worker of a pool may end. If so, the pool counts it no longer, and it must not
    claim.
    """
    name, body = call.path["name"], call.body
    if not await _authorize(call, name, body.life):
        return json_response({"leave": True})
    may_leave = pools.may_leave(call.store.operations.bases, body.pool, name)
    return json_response({"leave": await call.store.follow(may_leave)})


async def reconcile(call: Call[ReconcileRequest, Empty]) -> Response:
    """Delete the registration of a worker that has certainly ended, and end its leases now."""
    name, life = call.path["name"], call.body.life
    ended = await call.store.reconcile({name: life}) if await _authorize(call, name, life) else 0
    return json_response({"ended": ended})


async def drain(call: Call[Empty, Empty]) -> Response:
    """Ask a worker to finish its jobs and end: `drain` in its next registration's response."""
    await call.store.follow(call.store.operations.drain(call.path["name"]))
    return json_response({"drain": True}, 202)


async def _authorize(call: Call[Any, Any], name: str, life: str) -> model.WorkerInfo | None:
    """Return the worker if it is registered with this life. Raises Problem if it, or its name, belongs to
    another token: claims without a worker's name use the token's.
    """
    is_admin = Role.ADMIN in call.principal.roles
    if name != call.principal.name and call.is_token_name(name) and not is_admin:
        raise Problem(
            "forbidden",
            f"worker {name} has the name of another token: use that token, or choose another worker name",
        )
    try:
        worker = await call.store.follow(workers.worker(call.store.operations.bases, name))
    except NotFound:
        return None
    if worker.about.get("principal") != call.principal.name and not is_admin:
        raise Problem(
            "forbidden",
            f"worker {name} registered with another token: use that token, or one with role {Role.ADMIN}",
        )
    return worker if worker.life == life else None


def _queues(worker: model.WorkerInfo) -> list[str]:
    queues = worker.about.get("queues")
    return [name for name in queues if isinstance(name, str)] if isinstance(queues, list) else []
