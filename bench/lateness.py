"""Measure how late the jobs of schedules are, for `schedules.py`."""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sublet import App
from sublet.connection.settings import Settings, connect_sync
from sublet.protocol import keys, reads
from sublet.protocol.scripts import Call
from sublet.schedules import firing
from sublet.schedules.durations import EPOCH, MS
from sublet.schedules.recurrence import Recurrence, first
from sublet.store.store import Store

ROOT = Path(__file__).parent.parent
EVERY = 20
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
PATIENCE = 60.0
SPREAD = 50
NOTED = 50
"""Threshold of the slow log in µs. A lower one would also log each command within a script."""

app = App()


@app.task(queue="occurrences")
async def noop() -> None:
    """The schedules' task."""


@app.task(queue="short", timeout=None)
async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


class Site:
    """An empty namespace on a server."""

    def __init__(self, url: str, namespace: str) -> None:
        self.settings = Settings(redis_url=url, namespace=namespace, timeout=30)
        self.raw, self.store = connect_sync(self.settings), Store(self.settings)
        self.base = self.store.operations.bases[0]

    async def __aenter__(self) -> "Site":
        await self.store.prepare()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.raw.flushall()
        self.raw.close()
        await self.store.aclose()

    def now(self) -> int:
        seconds, micros = self.raw.time()
        return int(seconds * 1000 + micros // 1000)

    async def put(self, names: list[str], recurrence: Recurrence, occurrence: int | None) -> None:
        """Put schedules with one recurrence. Their first occurrence is `occurrence` (ms), or the recurrence's
        next.
        """
        plan = json.dumps({"when": recurrence.model_dump(mode="json", exclude_defaults=True)}).encode()
        calls = []
        for name in names:
            found = first(recurrence, name, (occurrence or self.now()) - 1)
            assert found, "it has no end"
            rest: dict[str, Any] = dict(
                queue="occurrences", task="noop", rules="", overlap="allow", paused=False, payload=b"{}"
            )
            due = occurrence or found.due
            calls.append(
                firing.schedule(
                    self.base, name, 0, plan=plan, occurrence=occurrence or found.occurrence, due=due, **rest
                )
            )
        await self.run_all(calls)

    async def run_all(self, calls: list[Call[Any]]) -> list[Any]:
        """Send calls, SPREAD of them concurrently. Return their replies in order."""
        answers: list[Any] = []
        for i in range(0, len(calls), SPREAD):
            answers += await asyncio.gather(*(self.store.run(call) for call in calls[i : i + SPREAD]))
        return answers

    def measure(self) -> None:
        self.raw.config_set("slowlog-log-slower-than", NOTED)
        self.raw.config_set("slowlog-max-len", 100_000)
        self.raw.config_resetstat()
        self.raw.slowlog_reset()

    def longest(self, name: str) -> dict[str, float]:
        """Return the longest and the tenth longest script call since `measure`, in ms."""
        scripts = [
            one["duration"] / 1000
            for one in self.raw.slowlog_get(100_000)
            if bytes(one["command"]).startswith(b"EVAL")
        ]
        longest = sorted([*scripts, *[0.0] * 10])[::-1]
        return {f"{name}_longest_ms": longest[0], f"{name}_tenth_ms": longest[9]}

    def spent(self) -> float:
        stats = self.raw.info("commandstats")
        return (
            float(sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("eval", "evalsha")))
            / 1000
        )


async def lateness(site: Site, kind: str, seconds: int) -> dict[str, float]:
    """Return the ms by which jobs of schedules of one second are late. Raises NotFound if one is missing."""
    await site.store.follow(
        site.store.operations.configure("*", completed=10_000_000)
    )  # so that the first jobs are not deleted
    if kind in ("busy", "full"):
        jobs, length = (seconds * 8000, 0.02) if kind == "busy" else (100, seconds + PATIENCE)
        payload = json.dumps({"seconds": length}).encode()
        await site.store.submit(
            [site.store.operations.submission("pause", payload, "short", "timeout=none") for _ in range(jobs)]
        )
    apart = (
        1000 // EVERY if kind == "ticks" else 0
    )  # ms: a tick has one phase of the second, occurrences have all
    with _process(site, kind, seconds):
        for i in range(EVERY):
            await site.put(
                [f"every-{i}"], Recurrence(every=1, missed="all", start=LONG_AGO + i * apart * MS), None
            )
        begin = site.now() // 1000 + 4  # all processes have read them by then
        await asyncio.sleep(seconds + 6)
        ids = [
            f"0-every-{i}:{(begin + second) * 1000 + i * apart}"
            for second in range(seconds)
            for i in range(EVERY)
        ]
        found = await site.run_all([reads.get(site.base, job_id) for job_id in ids])
        left = site.raw.zcard(keys.queue(site.base, "short"))
    assert kind != "busy" or left, "it had nothing to do any more"
    fired = [_late(job.id, job.submitted_at) for job in found]
    row = _spread(f"late_{kind}_fired_ms", fired)
    if kind in ("idle", "busy"):
        started = [_late(job.id, job.attempts[0].claimed_at) for job in found]
        row |= _spread(f"late_{kind}_started_ms", started)
    return row


async def lateness_of_the_new(site: Site) -> dict[str, float]:
    """Return the ms by which the jobs of ten new schedules, put within a second of the first occurrence, are late."""
    late = []
    with _process(site, "idle", 0):
        for i in range(10):
            await asyncio.sleep(2.1 + i / 10)  # the worker has claimed nothing, and waits
            occurrence = (site.now() // 1000 + 1) * 1000
            await site.put([f"new-{i}"], Recurrence(every=3600, start=EPOCH + occurrence * MS), occurrence)
            await asyncio.sleep((occurrence - site.now()) / 1000 + 2.5)
            job = await site.store.run(reads.get(site.base, f"0-new-{i}:{occurrence}"))
            late.append(_late(job.id, job.submitted_at))
    return _spread("late_new_fired_ms", late)


def _late(job_id: str, at: datetime) -> float:
    return at.timestamp() * 1000 - int(job_id.rpartition(":")[2])


@contextlib.contextmanager
def _process(site: Site, kind: str, seconds: int) -> Iterator[None]:
    work = ["work", "bench.lateness:app", "--queues", "slots,short", "--slots", "100", "--grace", "1s"]
    words = ["tick", "--for", f"{seconds + 60}s", "--every", "1s"] if kind == "ticks" else work
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SUBLET_REDIS_URL": site.settings.redis_url,
        "SUBLET_NAMESPACE": site.settings.namespace,
    }
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "sublet", *words], cwd=ROOT, env=env, stdout=said, stderr=said
        )
        try:
            until = time.monotonic() + PATIENCE
            while kind != "ticks" and "ready" not in _text(said):
                assert process.poll() is None, _text(said)
                assert time.monotonic() < until, _text(said)
                time.sleep(0.05)
            yield
            assert process.poll() is None, _text(said)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _text(said: Any) -> str:
    said.seek(0)
    return str(said.read())


def _spread(name: str, taken: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return {f"{name}_p50": cuts[49], f"{name}_p99": cuts[98], f"{name}_max": max(taken)}
