"""streaQ: jobs at a time on one event loop, from a Redis stream."""

import asyncio
import os
from collections.abc import Sequence

from streaq import Worker
from work import URL, finished, main, tally, text

CONCURRENCY = int(os.environ.get("BENCH_SLOTS", "16"))
BATCH = 100
SETTINGS = (
    f"concurrency {CONCURRENCY} (default: 16, faster than 100), prefetch the same (default); silent tasks; pickle, "
    f"results kept 300 s (defaults); uvloop; bulk = enqueue_many of {BATCH}"
)
worker = Worker[None](redis_url=URL, concurrency=CONCURRENCY, anyio_kwargs={"use_uvloop": True})


@worker.task(silent=True)
async def noop(n: int, text: str) -> int:
    tally(n)
    await asyncio.sleep(0)
    return n


@worker.task(silent=True)
async def slow(n: int) -> None:
    tally(n)
    await asyncio.sleep(1)
    finished(n)


async def ready() -> None:
    await worker.__aenter__()
    await worker.redis.ping()


async def close() -> None:
    await worker.__aexit__(None, None, None)


async def submit_one(n: int) -> None:
    await noop.enqueue(n, text(n))


async def submit_slow(n: int) -> None:
    await slow.enqueue(n)


async def submit_bulk(numbers: Sequence[int]) -> None:
    for i in range(0, len(numbers), BATCH):
        await worker.enqueue_many([noop.enqueue(n, text(n)) for n in numbers[i : i + BATCH]])


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        worker.run_sync,
        submit_slow,
        packages=["streaq", "coredis", "uvloop"],
        settings=SETTINGS,
        ready=ready,
        close=close,
    )
