"""`POST /jobs/claim`, `GET /jobs/next`. If the server sees the client disconnect before the response, claimed jobs are released."""

from collections.abc import Sequence
from typing import Any

from sublet.model import Claimed, Lease
from sublet.protocol.reads import json_of
from sublet_functions.handlers.call import Call
from sublet_functions.http.auth import LOCAL
from sublet_functions.http.response import Response, json_response, timestamp
from sublet_functions.schemas.query import ClaimNextQuery, Empty
from sublet_functions.schemas.requests import Claim

DEAD_MAX = 16
"""Most jobs in the header `Sublet-Dead`, which lists jobs that the claim made dead."""


async def claim(call: Call[Claim, Empty]) -> Response:
    """Claim up to `n` jobs: of the first queue first, or in turns (see `queues`); wait up to `wait` seconds
    for one. 204 if there is none.
    """
    asked = call.body
    claimed = await call.store.claim(
        worker=_worker(call, asked.worker, asked.queues),
        queues=asked.queues,
        n=asked.n,
        lease=asked.lease,
        wait=asked.wait,
        strict=asked.strict,
        claim_id=asked.claim_id,
    )
    return _response(call, claimed, {"jobs": [leased(lease) for lease in claimed.leases]})


async def claim_next(call: Call[Empty, ClaimNextQuery]) -> Response:
    """Claim one job, with options in the query instead of a body. 204 if none can be claimed."""
    asked = call.query
    claimed = await call.store.claim(
        worker=_worker(call, asked.worker, asked.queue),
        queues=asked.queue,
        n=1,
        lease=asked.lease,
        wait=asked.wait,
        claim_id=asked.claim_id,
    )
    return _response(call, claimed, leased(claimed.leases[0]) if claimed.leases else None)


def _worker(call: Call[Any, Any], given: str | None, queues: Sequence[str]) -> str:
    principal = call.principal
    if principal.scope is not None:
        principal.check(*queues)
    return principal.stored(given) if given else "http" if principal is LOCAL else principal.name


def _response(call: Call[Any, Any], claimed: Claimed, body: Any) -> Response:
    headers = {"Sublet-Next-In": f"{claimed.next_in:.3f}"}
    scope = call.principal.scope
    dead = [job for job in claimed.dead if scope is None or job.queue in scope]
    if dead:
        lines = [" ".join(map(str, job)) for job in dead]
        headers["Sublet-Dead"] = ", ".join(lines[:DEAD_MAX])
    if not claimed.leases:
        return Response(204, headers=headers)

    async def give_back() -> None:
        await call.store.give_back(claimed.leases, "the client disconnected")

    response = json_response(body, headers=headers)
    response.on_unsent = give_back
    return response


def leased(lease: Lease) -> dict[str, Any]:
    """Return a claimed job for a response's JSON, with its lease's token: only the claiming client may get that."""
    job: dict[str, Any] = {
        "id": lease.id,
        "task": lease.task,
        "queue": lease.queue,
        "payload": json_of(lease.payload),
        "attempt": lease.attempt,
        "max_attempts": lease.max_attempts,
        "tries_left": lease.tries_left,
        "token": lease.token,
        "lease_expires_at": timestamp(lease.expires_ms),
        "timeout": None if lease.timeout_ms is None else lease.timeout_ms / 1000,
        "recovered": lease.recovered,
    }
    if lease.stall_ms is not None:
        job["stall"] = lease.stall_ms / 1000
    if lease.trace:
        job["trace"] = lease.trace
    if lease.occurrence_ms is not None:
        job["occurrence"] = timestamp(lease.occurrence_ms)
    if lease.tags:
        job["tags"] = lease.tags
    if lease.lost:
        job["lost"] = True
    if lease.checkpoint:
        job["checkpoint"] = json_of(lease.checkpoint)
    return job
