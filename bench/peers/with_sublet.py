"""Sublet: `sublet work` with tasks on its event loop, or (BENCH_VARIANT=plain) plain functions in child
processes."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence

from work import SLOTS, URL, finished, main, tally, text

from sublet import App, Settings

PLAIN = os.environ.get("BENCH_VARIANT") == "plain"
CHUNK = 10_000
SETTINGS = (
    (
        "plain functions in child processes, as many as cores (default)"
        if PLAIN
        else f"--slots {SLOTS}; uvloop"
    )
    + f"; JSON, arguments and results validated, lease 30 s, results kept 24 h (defaults); bulk = submit_all of {CHUNK:,}"
)
app = App(settings=Settings(redis_url=URL))

if PLAIN:

    @app.task
    def noop(n: int, text: str) -> int:
        tally(n)
        return n

    @app.task
    def slow(n: int) -> None:
        tally(n)
        time.sleep(1)
        finished(n)

else:

    @app.task
    async def noop(n: int, text: str) -> int:
        tally(n)
        await asyncio.sleep(0)
        return n

    @app.task
    async def slow(n: int) -> None:
        tally(n)
        await asyncio.sleep(1)
        finished(n)


async def ready() -> None:
    await app.client.queues()


async def submit_one(n: int) -> None:
    await noop.submit(n, text(n))


async def submit_bulk(numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), CHUNK):
        await app.client.submit_all([noop.job(n, text(n)) for n in numbers[start : start + CHUNK]])


async def submit_slow(n: int) -> None:
    await slow.submit(n)


def work() -> None:
    slots = [] if PLAIN else ["--slots", str(SLOTS)]
    os.environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "SUBLET_REDIS_URL": URL}
    os.execv(sys.executable, [sys.executable, "-m", "sublet", "work", "with_sublet:app", *slots, "--quiet"])


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_slow,
        packages=["sublet", "redis", "hiredis", "pydantic", "uvloop"],
        settings=SETTINGS,
        ready=ready,
        close=app.aclose,
    )
