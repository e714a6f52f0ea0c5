"""Huey: a consumer with threads, or with processes (BENCH_VARIANT=processes), on a Redis list."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from huey import RedisHuey
from work import URL, finished, main, tally, text

MODEL = "process" if os.environ.get("BENCH_VARIANT") == "processes" else "thread"
WORKERS = {"thread": 2, "process": 4}[MODEL]
"""The fastest number of each: more threads wait for one another."""
SUBMITTERS = 4
SETTINGS = (
    f"-k {MODEL} -w {WORKERS}; RedisHuey: a list, blocking pop, pickle, results kept for ever (defaults); "
    f"no bulk call: {SUBMITTERS} threads submit"
)
queue = RedisHuey("bench", url=URL)


@queue.task()
def noop(n: int, text: str) -> int:
    tally(n)
    return n


@queue.task()
def slow(n: int) -> None:
    tally(n)
    time.sleep(1)
    finished(n)


def submit_one(n: int) -> None:
    noop(n, text(n))


def submit_bulk(numbers: Sequence[int]) -> None:
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(submit_some, [numbers[i::SUBMITTERS] for i in range(SUBMITTERS)]))


def submit_some(numbers: Sequence[int]) -> None:
    for n in numbers:
        submit_one(n)


def work() -> None:
    queue.create_consumer(workers=WORKERS, worker_type=MODEL, graceful_signal="TERM").run()


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        slow,
        packages=["huey", "redis", "hiredis"],
        settings=SETTINGS,
        ready=queue.storage.conn.ping,
    )
