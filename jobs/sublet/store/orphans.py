"""Delete large payloads and results, stored outside of Redis as objects, whose job does not exist."""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from sublet.errors import JobsError
from sublet.large_payloads.storage import Storage
from sublet.protocol import keys, reads
from sublet.protocol.plan import Plan

if TYPE_CHECKING:
    from sublet.operations.operations import Operations
    from sublet.store.store import Store
    from sublet.store.sync_store import SyncStore

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


def unowned(operations: "Operations", names: Mapping[str, Sequence[str]]) -> Plan[list[str]]:
    """Return the names of those objects (job id → names) whose job does not exist; skip missing partitions."""
    by_base: dict[str, list[str]] = {}
    for job_id in names:
        by_base.setdefault(operations.base_of_job(job_id), []).append(job_id)
    found: list[str] = []
    for base, ids in by_base.items():
        if not (yield reads.layout(base)):
            continue
        states = yield reads.together([("HGET", keys.job(base, i), "state") for i in ids], list)
        found += chain.from_iterable(names[i] for i, state in zip(ids, states, strict=True) if state is None)
    return found


def sweep_once(store: "SyncStore") -> int:
    """Of up to 1,000 objects, delete those older than an hour without a job. Return how many; 0 after an
    error, which is logged.
    """
    storage = store.settings.storage
    if storage is None:
        return 0
    try:
        gone = store.follow_existing(unowned(store.operations, storage.old_names()))
        storage.delete(gone)
    except JobsError as error:
        _failed(error)
        return 0
    return len(gone)


async def sweep(store: "Store", storage: Storage) -> int:
    """Do what `sweep_once` does, without blocking the loop; return how many objects were deleted."""
    try:
        names = await asyncio.to_thread(storage.old_names)
        gone = await store.follow_existing(unowned(store.operations, names))
        await asyncio.to_thread(storage.delete, gone)
    except JobsError as error:
        _failed(error)
        return 0
    return len(gone)


async def sweep_regularly(store: "Store", storage: Storage) -> None:
    """Sweep about once a minute, until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS * random.uniform(0.5, 1.5))
        await sweep(store, storage)


def _failed(error: JobsError) -> None:
    log.warning("large payloads without a job could not be deleted; the next sweep tries again: %s", error)
