"""Measure a contestant's drain rate with a thousand waiting jobs, and with a million.

Two servers, one with each backlog, are drained in turn; the fastest rounds are comparable. Slow
contestants get as many jobs as they can submit in twenty seconds.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import standing
import store as scripts
from contest import meter, servers
from contest.arena import Arena, Failed
from contest.contestants import Contestant
from contest.workloads import rate_of

from sublet.connection.settings import Settings, connect_sync
from sublet.protocol.scripts import Call
from sublet.store.store import Store

T = TypeVar("T")
Row = dict[str, Any]

FEW, MANY = 1_000, 1_000_000
MOST = 20_000
SECONDS = 4.0
FILL_SECONDS = 20.0
ALL_OF_IT = ("sublet", "bullmq")
"""Contestants with the full million, however long it takes, and ROUNDS rounds instead of one."""
ROUNDS = 7
HOLDS = 20


def run(arena: Arena, contestant: Contestant, *, many: int = MANY, seconds: float = SECONDS) -> list[Row]:
    """Return the rows `backlog_1k`, `backlog_1m` and `memory_pending_1m`; for ours, `hold` too. Raises Failed."""
    rounds = ROUNDS if contestant.name in ALL_OF_IT else 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        other = Arena(stack.enter_context(servers.serving(folder, _kind(arena))), folder, arena.programs)
        arena.flush()
        stack.callback(arena.flush)
        behind, bytes_each = _fill(arena, contestant, many)
        other.submit(contestant, "bulk", FEW + MOST)
        rates: dict[str, list[float]] = {"backlog_1k": [], "backlog_1m": []}
        for _ in range(rounds):
            for site, workload in ((other, "backlog_1k"), (arena, "backlog_1m")):
                rate, drained = drain(site, contestant, MOST, seconds)
                rates[workload].append(rate)
                site.submit(contestant, "bulk", drained, behind + MOST)
        note = f"{behind:,} behind"
        rows = [
            row(contestant, "backlog_1k", "jobs/s", rates["backlog_1k"], f"{FEW:,} to {FEW + MOST:,} behind")
        ]
        rows.append(row(contestant, "backlog_1m", "jobs/s", rates["backlog_1m"], note))
        rows.append(row(contestant, "memory_pending_1m", "bytes/job", [bytes_each], note))
        if contestant.name == "sublet":
            rows.append(_hold(contestant, arena.url, note))
    return rows


def drain(
    arena: Arena, contestant: Contestant, most: int, seconds: float, **variables: str
) -> tuple[float, int]:
    """Start and kill a worker. Return the jobs/s of the first `most` jobs, or `seconds`; and how many it started."""
    arena.clear()
    with arena.worker(contestant, **variables) as worker:
        arena.wait(1, [worker])
        arena.wait(most, [worker], seconds)
        worker.kill()
        tally = arena.tally()
    rate = rate_of([entry for entry in tally[:most] if entry[1] - tally[0][1] <= seconds * 1e9])
    if rate is None:
        raise Failed(f"{contestant.name}: the worker started {len(tally)} jobs: {worker.said()}")
    return rate, len(tally)


def row(
    contestant: Contestant,
    workload: str,
    unit: str,
    values: Sequence[float | None],
    note: str = "",
    **more: Any,
) -> Row:
    """Return a row with its median; None if a value is None."""
    known = [value for value in values if value is not None]
    median = statistics.median(known) if known and len(known) == len(values) else None
    named = {"contestant": contestant.name, "persistence": "off", "workload": workload, "unit": unit}
    return {**named, "values": list(values), "median": median, "note": note, **more}


def _kind(arena: Arena) -> str:
    return servers.version_of(arena.url).split()[0]


def _fill(arena: Arena, contestant: Contestant, many: int) -> tuple[int, float]:
    with meter.Meter(arena.url).counting() as counted:
        trial = min(2_000, many)
        per_second = trial / arena.submit(contestant, "bulk", trial)
        jobs = many if contestant.name in ALL_OF_IT else max(trial, min(many, int(per_second * FILL_SECONDS)))
        if jobs > trial:
            arena.submit(contestant, "bulk", jobs - trial, trial)
    return jobs, counted.memory / jobs


def _hold(contestant: Contestant, url: str, note: str) -> Row:
    held = asyncio.run(_holds(url))
    name = max(held, key=lambda name: max(held[name]))
    words = f"{name} (median {statistics.median(held[name]):.1f}), CPU time; {HOLDS} full batches of each script; {note}"
    return row(contestant, "hold", "ms", [max(held[name])], words)


async def _holds(url: str) -> dict[str, list[float]]:
    settings = Settings(redis_url=url, timeout=10)
    told, library = connect_sync(settings), Store(settings)
    pid, held = int(told.info("server")["process_id"]), dict[str, list[float]]()
    told.close()

    async def timed(name: str, call: Call[T]) -> T:
        began = standing._on_cpu(pid)
        answer = await library.run(call)
        held.setdefault(name, []).append((standing._on_cpu(pid) - began) / 1e6)
        return answer

    full: Callable[..., Awaitable[None]] = scripts._full_batches
    for _ in range(HOLDS):
        await full(library, library.operations.bases[0], timed)
    await library.aclose()
    return held
