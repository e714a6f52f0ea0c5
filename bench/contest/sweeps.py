"""Measure throughput by jobs per submit, and by slots per worker."""

import asyncio
import time
from collections.abc import Callable

from contest.arena import Arena
from contest.backlog import MOST, Row, drain, row
from contest.contestants import Contestant, named

from sublet import App, Settings
from sublet.client.client import Client

BATCHES = (1, 10, 100, 1_000)
SLOTS = (1, 10, 50, 100, 200, 400)
WHO = ["sublet", "bullmq"]
SECONDS = 2.0
TEXT = "x" * 170

app = App(settings=Settings())


@app.task
async def noop(n: int, text: str) -> int:
    return n


def run(arena: Arena, *, seconds: float = SECONDS) -> list[Row]:
    """Return the rows `sweep_batch` and `sweep_slots` of Sublet and BullMQ. Raises Failed."""
    here = [contestant for contestant in named(WHO) if contestant.name in arena.programs]
    rows = [_batch(arena, contestant, at, seconds) for at in BATCHES for contestant in here]
    rows += [_slots(arena, contestant, at, seconds) for at in SLOTS for contestant in here]
    arena.flush()
    return rows


def _batch(arena: Arena, contestant: Contestant, at: int, seconds: float) -> Row:
    arena.flush()
    if contestant.ours:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            rate = runner.run(_submits(arena.url, at, seconds))
    else:
        jobs = max(at, int(seconds * min(3_000 * at, 30_000)))  # a new process takes about as long to warm up
        rate = jobs / arena.ask(contestant, "submit", "bulk", str(jobs), BENCH_BATCH=str(at))["seconds"]
    return row(contestant, "sweep_batch", "jobs/s", [rate], at=at)


async def _submits(url: str, at: int, seconds: float) -> float:
    async with Client(Settings(redis_url=url)) as client:
        await client.queues()
        began, n = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            await client.submit_all([noop.job(n + i, TEXT) for i in range(at)])
            n += at
        return n / (time.perf_counter() - began)


def _slots(arena: Arena, contestant: Contestant, at: int, seconds: float) -> Row:
    arena.flush()
    jobs = 3 * MOST if contestant.ours else MOST
    arena.submit(contestant, "bulk", jobs)
    rate, _ = drain(arena, contestant, jobs, seconds, BENCH_SLOTS=str(at))
    return row(contestant, "sweep_slots", "jobs/s", [rate], at=at)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made
