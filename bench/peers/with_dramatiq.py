"""Dramatiq: its command line with one worker process, or one per core, its default (BENCH_VARIANT=processes);
keeps results."""

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from work import URL, finished, main, tally, text

PROCESSES = str(os.cpu_count()) if os.environ.get("BENCH_VARIANT") == "processes" else "1"
THREADS = "2"
"""Faster than 8, the default: the threads of a process share one interpreter."""
TUNED = {"dramatiq_queue_prefetch": "100"}
"""Twice as fast as the default, two messages per thread: a worker with so many sleeps before it asks for more.
"""
SUBMITTERS = 4
SETTINGS = (
    f"{PROCESSES} process(es) of {THREADS} threads, dramatiq_queue_prefetch=100; JSON, results kept 10 min (defaults); "
    f"no bulk call: {SUBMITTERS} threads submit"
)
broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def noop(n: int, text: str) -> int:
    tally(n)
    return n


@dramatiq.actor(store_results=True)
def slow(n: int) -> None:
    tally(n)
    time.sleep(1)
    finished(n)


def submit_one(n: int) -> None:
    noop.send(n, text(n))


def submit_bulk(numbers: Sequence[int]) -> None:
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(submit_some, [numbers[i::SUBMITTERS] for i in range(SUBMITTERS)]))


def submit_some(numbers: Sequence[int]) -> None:
    for n in numbers:
        submit_one(n)


def work() -> None:
    options = ["--processes", PROCESSES, "--threads", THREADS, "--path", str(Path(__file__).parent)]
    command = [sys.executable, "-m", "dramatiq", "with_dramatiq", *options]
    os.execve(sys.executable, command, {**os.environ, **TUNED})


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        slow.send,
        packages=["dramatiq", "redis", "hiredis"],
        settings=SETTINGS,
        ready=broker.client.ping,
    )
