"""Measure the store: memory per job, jobs per second through the scripts and through one worker, and the
longest hold of Redis.

Compare figures of one run.
"""

import argparse
import asyncio
import json
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Settings
from sublet.connection.settings import connect_sync
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.model import Beat, Completion, Failure, Lease, Release, Submission
from sublet.protocol import verbs
from sublet.protocol.scripts import Call
from sublet.store.store import Store
from sublet_functions.work import work

PAYLOAD = b'{"text":"' + b"x" * 189 + b'"}'
BATCH = 100
CALLS = 2

T = TypeVar("T")

app = App(settings=Settings())


@app.task(queue="bench")
async def noop() -> None:
    """The task of the measured jobs: do nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs per phase (100,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median is shown (3)")
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for name, binary in _servers().items():
        with _server(binary) as server:
            rounds = []
            for number in range(asked.rounds):
                print(f"{server.version}: round {number + 1} of {asked.rounds} …", file=sys.stderr)
                rounds.append(asyncio.run(_round(server.url, asked.jobs)))
            row = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
            found[server.version or name] = row | asyncio.run(_holds(server.url))
    print(json.dumps(found, indent=2) if asked.json else _table(found))


def _servers() -> dict[str, str | None]:
    servers: dict[str, str | None] = {"valkey": None}
    if shutil.which("redis-server"):
        servers = {"redis": "redis-server", **servers}
    return servers


@contextmanager
def _server(binary: str | None) -> Iterator[EmbeddedServer]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
    ):
        yield server


async def _round(url: str, jobs: int) -> dict[str, float]:
    settings = Settings(redis_url=url, timeout=10)
    raw, store = connect_sync(settings), Store(settings)
    raw.flushall()
    await store.prepare()
    base, found = store.operations.bases[0], {}
    batches = [
        [store.operations.submission("noop", PAYLOAD, "default", "") for _ in range(BATCH)]
        for _ in range(jobs // BATCH)
    ]
    before = raw.info("memory")["used_memory"]
    found["submit_per_s"] = jobs / await _timed(_submit, store, base, batches)
    events = raw.memory_usage(f"{base}:events", samples=0) or 0
    found["bytes_per_pending_job"] = (raw.info("memory")["used_memory"] - before - events) / jobs
    found["bytes_of_event_stream"] = float(events)
    raw.config_resetstat()
    found["claim_complete_per_s"] = jobs / await _timed(_drain, store, base)
    found["redis_us_per_claim_complete"] = raw.info("commandstats")["cmdstat_evalsha"]["usec"] / jobs
    raw.flushall()
    await store.aclose()
    app._settings = settings
    app._operations = None
    await app.client.submit_all([noop.job() for _ in range(jobs)])
    summary = await work(app, slots=100, drain=True)
    await app.aclose()
    assert summary.completed == jobs, summary
    found["worker_per_s"] = jobs / summary.seconds
    raw.close()
    return found


async def _timed(loop: Callable[..., Awaitable[None]], *args: Any) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(loop(*args) for _ in range(CALLS)))
    return time.perf_counter() - began


async def _submit(store: Store, base: str, batches: list[list[Submission]]) -> None:
    while batches:
        await store.run(verbs.submit(base, batches.pop()))


async def _drain(store: Store, base: str) -> None:
    done: list[Completion] = []
    while True:
        call = _claim(base, BATCH)
        if done:
            claimed, _ = await asyncio.gather(store.run(call), store.settle(done))
        else:
            claimed = await store.run(call)
        done = [Completion(lease, b'"a result"') for lease in claimed.leases]
        if not done:
            return


def _claim(base: str, n: int, lease: float = 30) -> Call[Any]:
    return verbs.claim(
        base, claim_id=secrets.token_urlsafe(16), worker="bench", lease=lease, n=n, queues=["default"]
    )


async def _holds(url: str) -> dict[str, float]:
    settings = Settings(redis_url=url, timeout=10)
    raw, store = connect_sync(settings), Store(settings)
    raw.flushall()
    await store.prepare()
    base = store.operations.bases[0]
    await store.submit([_job(store) for _ in range(50_000)])
    held: dict[str, list[float]] = {}

    async def timed(name: str, call: Call[T]) -> T:
        raw.config_resetstat()
        answer = await store.run(call)
        stats = raw.info("commandstats")
        held.setdefault(name, []).append(
            sum(stats.get(f"cmdstat_{c}", {"usec": 0})["usec"] for c in ("eval", "evalsha")) / 1000
        )
        return answer

    for _ in range(30):
        await _full_batches(store, base, timed)
    await store.aclose()
    raw.close()
    figures: dict[str, float] = {}
    for name, times in sorted(held.items()):
        figures |= {f"hold_ms_{name}_p50": statistics.median(times), f"hold_ms_{name}_max": max(times)}
    return figures


def _job(store: Store, rules: str = "") -> Submission:
    return store.operations.submission("noop", PAYLOAD, "default", rules)


async def _full_batches(store: Store, base: str, timed: Callable[[str, Call[Any]], Awaitable[Any]]) -> None:
    jobs = [_job(store, "retention=60000") for _ in range(verbs.BATCH)]
    await timed("submit", verbs.submit(base, jobs))
    await timed("watch", verbs.watch(base, [job.id for job in jobs]))
    await timed(
        "heartbeat",
        verbs.heartbeat(
            base, [Beat(lease, b'{"fraction":0.5}') for lease in await _leases(store, base)], lease=0
        ),
    )
    await timed("reap", verbs.reap(base, limit=verbs.SETTLE_MAX, by="bench"))
    await timed("complete", verbs.complete(base, await _results(store, base)))
    detail = "Traceback (most recent call last):\n" + "  a line of a trace\n" * 200
    await timed(
        "fail",
        verbs.fail(
            base,
            [
                Failure(lease, "ValueError", "no", detail)
                for lease in (await _leases(store, base))[: verbs.FAIL_MAX]
            ],
        ),
    )
    given_back = (await _leases(store, base))[: verbs.SETTLE_MAX]
    await timed("release", verbs.release(base, [Release(lease, 0, "bye") for lease in given_back]))
    lost = await _leases(store, base)
    await store.run(verbs.heartbeat(base, [Beat(lease) for lease in lost], lease=0))
    await timed("claim_after_60_lost", _claim(base, verbs.CLAIM_MAX))
    await timed("claim", _claim(base, verbs.CLAIM_MAX))
    await _old(store, base)
    await timed("prune", verbs.prune(base, limit=verbs.BATCH))
    await _old(store, base)
    await timed("complete_and_forget", verbs.complete(base, await _results(store, base)))


async def _results(store: Store, base: str) -> list[Completion]:
    return [Completion(lease, b'"a result"') for lease in (await _leases(store, base))[: verbs.COMPLETE_MAX]]


async def _old(store: Store, base: str) -> None:
    for _ in range(verbs.BATCH // verbs.COMPLETE_MAX + 1):
        done = await _results(store, base)
        await store.run(verbs.complete(base, done))
        old = [word for ending in done for word in (1, ending.lease.id)]
        await store.run(Call((("ZADD", f"{base}:completed", *old),), lambda reply: reply))


async def _leases(store: Store, base: str) -> list[Lease]:
    found: list[Lease] = []
    for _ in range(2):
        found += (await store.run(_claim(base, verbs.CLAIM_MAX))).leases
    return found


def _table(found: dict[str, dict[str, float]]) -> str:
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    lines = ["".ljust(34) + "".join(version.rjust(20) for version in found)]
    for name in names:
        cells = (f"{row[name]:,.2f}" if row[name] < 100 else f"{row[name]:,.0f}" for row in found.values())
        lines.append(name.ljust(34) + "".join(cell.rjust(20) for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
