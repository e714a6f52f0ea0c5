"""The namespace that `dashboard.py` measures, and jobs that run in it."""

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

import aiohttp

from sublet.model import Card, Completion, Failure, Lease
from sublet.protocol import keys, verbs
from sublet.protocol.person import acting_for
from sublet.store.store import Store
from sublet.tasks import catalogue

CHUNK = 1000
SHARES = {"completed": 0.2, "dead": 0.05, "cancelled": 0.01}
SCHEDULED = 20
"""Fewer than a page, so that a list of all states reads the queues, too."""
TASKS = 100
GROUPS = 200
FAILS = 10
FOR_GOOD = "tries=1"


async def fill(store: Store, url: str, asked: argparse.Namespace) -> None:
    names = [f"queue-{n}" for n in range(asked.queues)]
    left = asked.jobs
    for state, share in SHARES.items():
        left -= (some := int(asked.jobs * share))
        await _submit(store, names, some, FOR_GOOD if state == "dead" else "")
        await (_cancel(store, some) if state == "cancelled" else _end(store, names, state))
    await _submit(store, names, SCHEDULED, "delay=86400000")
    await _submit(store, names, left - SCHEDULED)
    for worker in range(asked.workers):
        own = names[worker :: asked.workers]
        about = json.dumps({"host": "bench", "slots": 10, "queues": own}).encode()
        await store.enlist(Card(f"worker-{worker}", "1", "", about))
        await claim(store, f"worker-{worker}", own[:8] or names[:1], 2)
    await _group(store)
    base = store.operations.bases[0]
    text = json.dumps({"summary": "do nothing", "arguments": {"type": "object"}}).encode()
    tasks = [catalogue.published_as(f"task-{n}", text) for n in range(TASKS)]
    await store.follow(catalogue.publish(base, tasks, starting=True))
    await _schedule(url, asked.schedules)


async def _submit(store: Store, names: Sequence[str], count: int, rules: str = "") -> None:
    make, payload = store.operations.submission, json.dumps({"text": "x" * 150}).encode()
    for start in range(0, count, CHUNK):
        await store.submit([
            make("noop", payload, names[n % len(names)], f"{rules} tags=tenant:{n % 50}".strip() if n % 4 == 0 else rules)
            for n in range(start, min(count, start + CHUNK))
        ])  # fmt: skip


async def _group(store: Store) -> None:
    await store.follow(store.operations.configure("grouped", group_concurrency=1))
    make = store.operations.submission
    await store.submit([make("noop", b"{}", "grouped", f"group=g{n % GROUPS}") for n in range(CHUNK)])
    await claim(store, "bench", ["grouped"], verbs.FAIL_MAX)


async def _end(store: Store, names: Sequence[str], state: str) -> None:
    base = store.operations.bases[0]
    for start in range(0, len(names), verbs.QUEUES_MAX):
        some = names[start : start + verbs.QUEUES_MAX]
        while leases := await claim(store, "filler", some, verbs.FAIL_MAX):
            await store.run(_ending(base, leases, state == "completed"))


def _ending(base: str, leases: Sequence[Lease], is_good: bool) -> Any:
    if is_good:
        return verbs.complete(base, [Completion(lease, b'{"is":"done"}') for lease in leases])
    return verbs.fail(base, [Failure(lease, "ValueError", f"order {lease.attempt} has no customer", again=False) for lease in leases])  # fmt: skip


async def _cancel(store: Store, count: int) -> None:
    page = await store.follow(store.operations.list_jobs("queued", limit=200))
    while page.jobs:
        with acting_for("ada"):
            for job in page.jobs:
                await store.follow(store.operations.cancel(job.id, job.revision))
        page = await store.follow(store.operations.list_jobs("queued", limit=200))


async def _schedule(url: str, count: int) -> None:
    async with aiohttp.ClientSession() as session:
        for n in range(count):
            body = {"task": "noop", "every": 3600 + n}
            async with session.put(f"{url}/schedules/s-{n}", json=body) as answer:
                assert answer.status == 201, await answer.text()


async def claim(store: Store, worker: str, queues: Sequence[str], most: int) -> list[Lease]:
    base, claim_id = store.operations.bases[0], uuid.uuid4().hex
    found = await store.run(
        verbs.claim(base, claim_id=claim_id, worker=worker, lease=600, n=most, queues=queues)
    )
    return list(found.leases)


async def events(store: Store, rate: float) -> None:
    """Submit and run `rate` jobs a second; one of ten fails."""
    base, at, n = store.operations.bases[0], time.monotonic(), 0
    while True:
        n += 1
        await store.submit([store.operations.submission("noop", b"{}", "steady", "")])
        leases = await claim(store, "bench", ["steady"], 1)
        if leases:
            await store.run(_ending(base, leases, n % FAILS != 0))
        at += 1 / rate
        await asyncio.sleep(max(0.0, at - time.monotonic()))


def ring(raw: Any, base: str) -> None:
    raw.setrange(keys.minutes(base), 1440 * 128 - 1, b" ")
    raw.setrange(keys.hours(base), 720 * 128 - 1, b" ")
