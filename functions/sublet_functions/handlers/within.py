"""Keep a token that is limited to some queues within them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from sublet.errors import NotFound
from sublet.operations import pools
from sublet.protocol import reads
from sublet.store.store import Store
from sublet_functions.handlers.call import Call
from sublet_functions.http.problems import Problem

W = TypeVar("W")


async def queues_of(store: Store, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the queue of each job by id, without jobs that do not exist."""
    by_base: dict[str, list[str]] = {}
    for job_id in dict.fromkeys(job_ids):
        by_base.setdefault(store.operations.base_of_job(job_id), []).append(job_id)
    found = await asyncio.gather(*(store.run(reads.queues_of(base, own)) for base, own in by_base.items()))
    return {job_id: queue for part in found for job_id, queue in part.items()}


async def outside(call: Call[Any, Any], job_ids: Sequence[str]) -> set[str]:
    """Return those of the ids that are not of a job in the token's queues; none if the token may use all."""
    scope = call.principal.scope
    if scope is None or not job_ids:
        return set()
    queues = await queues_of(call.store, job_ids)
    return {job_id for job_id in job_ids if job_id not in queues or queues[job_id] not in scope}


async def check_job(call: Call[Any, Any]) -> None:
    """Raise NotFound if the token is limited to queues, and the path's job is in none of them."""
    job_id = call.path["id"]
    if await outside(call, [job_id]):
        raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")


async def taken(call: Call[Any, Any], job_ids: Sequence[str]) -> dict[str, Problem]:
    """Return a problem for each id that a submit found in use by a job outside of the token's queues."""
    return {
        job_id: Problem(
            "key-taken", f"id {job_id}: a job outside the queues of this token has it: choose another"
        )
        for job_id in await outside(call, job_ids)
    }


async def check_taken(call: Call[Any, Any], job_id: str) -> None:
    """Raise the problem of `taken` for one id, if there is one."""
    for problem in (await taken(call, [job_id])).values():
        raise problem


async def lease_answers(
    call: Call[Any, Any], job_ids: Sequence[str], words: Sequence[W]
) -> Sequence[W | str]:
    """Return `words`, the answers; LEASE_LOST for a job outside of the token's queues becomes NOT_FOUND."""
    if call.principal.scope is None:
        return words
    lost = [job_id for job_id, word in zip(job_ids, words, strict=True) if word == "LEASE_LOST"]
    hidden = await outside(call, lost)
    return ["NOT_FOUND" if job_id in hidden else word for job_id, word in zip(job_ids, words, strict=True)]


async def check_pool(call: Call[Any, Any], name: str) -> None:
    """Raise Problem if the pool has queues outside the token's."""
    if name and call.principal.scope is not None:
        for pool in await call.store.follow(pools.known(call.store.operations.bases)):
            if pool.name == name:
                call.principal.check(*pool.queues)
