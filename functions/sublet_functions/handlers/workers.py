"""The routes of `/workers`: list, register and drain workers."""

from typing import Any

from sublet import model
from sublet.errors import NotFound
from sublet.operations import pools, workers
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_pool
from sublet_functions.http.auth import Principal, Role
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, LifeQuery, WorkersQuery
from sublet_functions.schemas.requests import ReconcileRequest, RetireRequest, WorkerRegistration

ABOUT_MAX = 4096


async def list_workers(call: Call[Empty, WorkersQuery]) -> Response:
    """List registered workers, latest heartbeat first: at most 1,000 with their running jobs or, with
    `jobs=false`, all without. Only the token's workers, by the names that they gave: with `own` (unless the
    token is admin), if it is limited to queues, or if it has neither role read nor admin.
    """
    principal = call.principal
    list_them = workers.workers if call.query.jobs else workers.everyone
    found = await call.store.follow(list_them(call.store.operations.bases))
    reads_all = principal.scope is None and principal.roles & {Role.READ, Role.ADMIN}
    if principal.prefix and (call.query.own or not reads_all):
        found = [_as_named(principal, worker) for worker in found if _is_own(principal, worker.name)]
    return json_response({"workers": found}, reads=3 * len(found))


def _is_own(principal: Principal, name: str) -> bool:
    return name == principal.name or name.startswith(principal.prefix)


def _as_named(principal: Principal, worker: model.WorkerInfo) -> model.WorkerInfo:
    names = {"name": principal.own(worker.name), "worker_id": principal.own(worker.worker_id)}
    return worker.model_copy(update=names)


async def enlist(call: Call[WorkerRegistration, Empty]) -> Response:
    """Register a worker, or renew its registration. Returns whether the worker shall finish its jobs and end."""
    principal, body = call.principal, call.body
    about = {**body.about, "principal": principal.name}
    if principal.scope is not None:
        about = _about_within(principal, about)
        await check_pool(call, body.pool)
    said = stored_json(about, ABOUT_MAX, "body", "about")
    name = principal.stored(call.path["name"])
    worker_id = principal.stored(body.worker_id) if body.worker_id else ""
    card = model.Card(name, body.life, worker_id, said, body.pool, body.summons, principal.name)
    return json_response({"drain": await call.store.enlist(card)})


def _about_within(principal: Principal, about: dict[str, Any]) -> dict[str, Any]:
    queues = about.get("queues")
    if "queue_count" in about or not isinstance(queues, list):  # it may serve all that it may claim from
        entries = principal.scope.entries if principal.scope else []
        return {name: value for name, value in about.items() if name != "queue_count"} | {"queues": entries}
    principal.check(*map(str, queues))
    return about


async def leave(call: Call[Empty, LifeQuery]) -> Response:
    """Delete the registration of a worker that ends, unless another life has registered. Its leases, if any,
    expire.
    """
    name, life = call.principal.stored(call.path["name"]), call.query.life
    worker = await _worker(call, name, life)
    if worker:
        await call.store.leave(model.Card(name, life, "", b""))
        call.store.nudge(_queues(worker))  # its jobs may need another worker
    return Response(204)


async def retire(call: Call[RetireRequest, Empty]) -> Response:
    """Ask whether an idle worker of a pool may end. If so, the pool counts it no longer, and it must not
    claim.
    """
    name, body = call.principal.stored(call.path["name"]), call.body
    await check_pool(call, body.pool)
    if not await _worker(call, name, body.life):
        return json_response({"leave": True})
    may_leave = pools.may_leave(call.store.operations.bases, body.pool, name)
    return json_response({"leave": await call.store.follow(may_leave)})


async def reconcile(call: Call[ReconcileRequest, Empty]) -> Response:
    """End the leases of a gone worker, and delete its registration, if it is registered with this life. Return how
    many leases ended, else 0.
    """
    name, life = call.principal.stored(call.path["name"]), call.body.life
    ended = await call.store.reconcile({name: life}) if await _worker(call, name, life) else 0
    return json_response({"ended": ended})


async def drain(call: Call[Empty, Empty]) -> Response:
    """Ask a worker to finish its jobs and end. The response to its next registration has `drain`."""
    await call.store.follow(call.store.operations.drain(call.path["name"]))
    return json_response({"drain": True}, 202)


async def _worker(call: Call[Any, Any], name: str, life: str) -> model.WorkerInfo | None:
    try:
        worker = await call.store.follow(workers.worker(call.store.operations.bases, name))
    except NotFound:
        return None
    return worker if worker.life == life else None


def _queues(worker: model.WorkerInfo) -> list[str]:
    queues = worker.about.get("queues")
    return [name for name in queues if isinstance(name, str)] if isinstance(queues, list) else []
