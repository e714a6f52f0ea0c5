"""arq: jobs at a time on one event loop. Its default poll of 0.5 s would hold it to about 1,000 jobs/s."""

import asyncio
from collections.abc import Sequence
from typing import Any

from arq import ArqRedis, Worker, create_pool
from arq.connections import RedisSettings
from work import SLOTS, URL, finished, loop_factory, main, tally, text

POLL = 0.001
"""Seconds between two polls: the drain is as fast with 0.01, but a single job waits longer."""
CONCURRENT = 20
SETTINGS = (
    f"tuned: poll_delay {POLL} s (default 0.5 s), max_jobs {SLOTS} and with it queue_read_limit {5 * SLOTS}, log_results off; "
    f"pickle, keep_result 1 h (defaults); uvloop; no bulk call: {CONCURRENT} submits at a time"
)
CONNECTION = RedisSettings.from_dsn(URL)
_pools: list[ArqRedis] = []


async def noop(ctx: dict[str, Any], n: int, text: str) -> int:
    tally(n)
    await asyncio.sleep(0)
    return n


async def slow(ctx: dict[str, Any], n: int) -> None:
    tally(n)
    await asyncio.sleep(1)
    finished(n)


async def ready() -> None:
    _pools.append(await create_pool(CONNECTION))


async def close() -> None:
    await _pools[0].aclose()


async def submit_one(n: int) -> None:
    await _pools[0].enqueue_job("noop", n, text(n))


async def submit_slow(n: int) -> None:
    await _pools[0].enqueue_job("slow", n)


async def submit_bulk(numbers: Sequence[int]) -> None:

    async def lane(numbers: Sequence[int]) -> None:
        for n in numbers:
            await submit_one(n)

    await asyncio.gather(*(lane(numbers[i::CONCURRENT]) for i in range(CONCURRENT)))


def work() -> None:
    asyncio.set_event_loop((loop_factory() or asyncio.new_event_loop)())
    Worker([noop, slow], redis_settings=CONNECTION, max_jobs=SLOTS, poll_delay=POLL, log_results=False).run()


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_slow,
        packages=["arq", "redis", "hiredis", "uvloop"],
        settings=SETTINGS,
        ready=ready,
        close=close,
    )
