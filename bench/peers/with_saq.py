"""SAQ on Redis: jobs at a time on one event loop, a connection blocking in BLMOVE for each."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
from redis.asyncio import Redis
from saq import Worker
from saq.queue.redis import RedisQueue
from work import SLOTS, URL, finished, loop_factory, main, tally, text

CONCURRENT = 20
"""Submits at a time in bulk: its default `max_concurrent_ops`, faster than more."""
SETTINGS = (
    f"concurrency {SLOTS}, max_concurrent_ops the same in the worker; orjson; a pool with room for all connections; uvloop; "
    f"ttl 600 s (default); no bulk call: {CONCURRENT} submits at a time (default max_concurrent_ops)"
)
_queues: list[RedisQueue] = []


def queue(operations: int) -> RedisQueue:
    """The queue, with so many operations at a time; they block in the pool no earlier than that."""
    redis = Redis.from_url(URL, max_connections=4 * SLOTS + 100)
    return RedisQueue(redis, dump=orjson.dumps, load=orjson.loads, max_concurrent_ops=operations)


async def noop(ctx: dict[str, Any], *, n: int, text: str) -> int:
    tally(n)
    await asyncio.sleep(0)
    return n


async def slow(ctx: dict[str, Any], *, n: int) -> None:
    tally(n)
    await asyncio.sleep(1)
    finished(n)


async def ready() -> None:
    _queues.append(queue(CONCURRENT))
    await _queues[0].connect()
    await _queues[0].redis.ping()


async def close() -> None:
    await _queues[0].disconnect()


async def submit_one(n: int) -> None:
    await _queues[0].enqueue("noop", n=n, text=text(n))


async def submit_slow(n: int) -> None:
    await _queues[0].enqueue("slow", n=n)


async def submit_bulk(numbers: Sequence[int]) -> None:

    async def lane(numbers: Sequence[int]) -> None:
        for n in numbers:
            await submit_one(n)

    await asyncio.gather(*(lane(numbers[i::CONCURRENT]) for i in range(CONCURRENT)))


def work() -> None:

    async def run() -> None:
        ours = queue(SLOTS)
        await ours.connect()
        try:
            await Worker(ours, [noop, slow], concurrency=SLOTS).start()
        finally:
            await ours.disconnect()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_slow,
        packages=["saq", "redis", "hiredis", "orjson", "uvloop"],
        settings=SETTINGS,
        ready=ready,
        close=close,
    )
