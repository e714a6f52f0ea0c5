"""`POST /jobs/claim`, `GET /jobs/next`: take jobs, each under a lease. A caller that hangs up first has taken none."""

from typing import Any

from sublet.model import Claimed, Lease
from sublet.protocol.reads import json_of
from sublet_functions.api.auth import ANYONE
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply, moment
from sublet_functions.schemas.query import NextQuery, Nothing
from sublet_functions.schemas.requests import Claim


async def claim(call: Call[Claim, Nothing]) -> Reply:
    """Take up to `n` jobs from the queues, in their order; with `wait`, stay for the first one. 204 when there is none."""
    wish = call.body
    claimed = await call.store.claim(
        worker=_claimer(call, wish.worker),
        queues=wish.queues,
        n=wish.n,
        lease=wish.lease,
        wait=wish.wait,
        claim_id=wish.claim_id,
    )
    return _answer(call, claimed, {"jobs": [leased(lease) for lease in claimed.leases]})


async def claim_next(call: Call[Nothing, NextQuery]) -> Reply:
    """Take one job, for those who would rather write no body. 204 when there is none."""
    wish = call.query
    claimed = await call.store.claim(
        worker=_claimer(call, wish.worker),
        queues=wish.queue,
        n=1,
        lease=wish.lease,
        wait=wish.wait,
        claim_id=wish.claim_id,
    )
    return _answer(call, claimed, leased(claimed.leases[0]) if claimed.leases else None)


def _claimer(call: Call[Any, Any], said: str | None) -> str:
    """In whose name jobs are taken. One that all tokens shared could be registered by any of them, to end the others' leases."""
    return said or ("http" if call.who is ANYONE else call.who.name)


def _answer(call: Call[Any, Any], claimed: Claimed, said: Any) -> Reply:
    headers = {"Sublet-Next-In": f"{claimed.next_in:.3f}"}
    if not claimed.leases:
        return Reply(204, headers=headers)

    async def give_back() -> None:
        await call.store.give_back(claimed.leases, "abandoned: the claimer hung up")

    reply = json_reply(said, headers=headers)
    reply.unsent = give_back
    return reply


def leased(lease: Lease) -> dict[str, Any]:
    """A job under a lease, as it goes to the caller who claimed it, and to nobody else."""
    said: dict[str, Any] = {
        "id": lease.id,
        "task": lease.task,
        "queue": lease.queue,
        "payload": json_of(lease.payload),
        "attempt": lease.attempt,
        "token": lease.token,
        "lease_expires_at": moment(lease.expires_ms),
        "timeout": None if lease.timeout_ms is None else lease.timeout_ms / 1000,
        "recovered": lease.recovered,
    }
    if lease.trace:
        said["trace"] = lease.trace
    if lease.occurrence_ms is not None:
        said["occurrence"] = moment(lease.occurrence_ms)
    if lease.checkpoint:
        said["checkpoint"] = json_of(lease.checkpoint)
    return said
