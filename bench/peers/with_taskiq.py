"""taskiq on a Redis stream, with the acknowledging broker and result backend of taskiq-redis."""

import asyncio
import os
import sys
from collections.abc import Sequence

from taskiq.formatters.json_formatter import JSONFormatter
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker
from work import SLOTS, URL, finished, main, tally, text

CONCURRENT = 20
CONNECTIONS = SLOTS + CONCURRENT
KEEP = 3600
"""Seconds that a result is kept: its documentation warns against the default, for ever."""
SETTINGS = (
    f"RedisStreamBroker (acknowledges; the list broker is no faster), one worker process, --max-async-tasks {SLOTS}, --no-parse, "
    f"logs warnings only; JSONFormatter, results kept {KEEP // 3600} h; uvloop; no bulk call: {CONCURRENT} submits at a time"
)
results: RedisAsyncResultBackend[int | None] = RedisAsyncResultBackend(
    URL, result_ex_time=KEEP, max_connection_pool_size=CONNECTIONS
)
broker = (
    RedisStreamBroker(URL, max_connection_pool_size=CONNECTIONS)
    .with_result_backend(results)
    .with_formatter(JSONFormatter())
)


@broker.task(task_name="noop")
async def noop(n: int, text: str) -> int:
    tally(n)
    await asyncio.sleep(0)
    return n


@broker.task(task_name="slow")
async def slow(n: int) -> None:
    tally(n)
    await asyncio.sleep(1)
    finished(n)


async def submit_one(n: int) -> None:
    await noop.kiq(n, text(n))


async def submit_slow(n: int) -> None:
    await slow.kiq(n)


async def submit_bulk(numbers: Sequence[int]) -> None:

    async def lane(numbers: Sequence[int]) -> None:
        for n in numbers:
            await submit_one(n)

    await asyncio.gather(*(lane(numbers[i::CONCURRENT]) for i in range(CONCURRENT)))


def work() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    command = [
        sys.executable,
        "-m",
        "taskiq",
        "worker",
        "with_taskiq:broker",
        "--app-dir",
        here,
        "--workers",
        "1",
    ]
    command += ["--max-async-tasks", str(SLOTS), "--no-parse", "--log-level", "WARNING"]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_slow,
        packages=["taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"],
        settings=SETTINGS,
        ready=broker.startup,
        close=broker.shutdown,
    )
