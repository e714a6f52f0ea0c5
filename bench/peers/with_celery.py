"""Celery: its command line's worker with forked processes, or threads (BENCH_VARIANT=threads); keeps results."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from celery import Celery
from work import URL, finished, main, tally, text

POOL = "threads" if os.environ.get("BENCH_VARIANT") == "threads" else "prefork"
CONCURRENCY = 8 if POOL == "threads" else os.cpu_count() or 1
PREFETCH = 128
"""Prefetched jobs per slot: the advice of its optimizing guide for many short jobs."""
LEAN = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
SETTINGS = (
    f"-P {POOL} -c {CONCURRENCY} {' '.join(LEAN)}, prefetch multiplier {PREFETCH}; JSON, acknowledges early, "
    "results kept 1 day (defaults); no bulk call: one producer reused"
)
app = Celery("bench", broker=URL, backend=URL)
app.conf.worker_prefetch_multiplier = PREFETCH
app.conf.broker_connection_retry_on_startup = True  # the default behaviour, without a warning


@app.task(name="noop")
def noop(n: int, text: str) -> int:
    tally(n)
    return n


@app.task(name="slow")
def slow(n: int) -> None:
    tally(n)
    time.sleep(1)
    finished(n)


def submit_one(n: int) -> None:
    noop.delay(n, text(n))


def submit_bulk(numbers: Sequence[int]) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for n in numbers:
            noop.apply_async((n, text(n)), producer=producer)


def ready() -> None:
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=3)
    app.backend.client.ping()


def work() -> None:
    os.chdir(Path(__file__).parent)
    options = ["--pool", POOL, "--concurrency", str(CONCURRENCY), "--loglevel", "WARNING", *LEAN]
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "with_celery", "worker", *options])


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        slow.delay,
        packages=["celery", "kombu", "redis", "hiredis"],
        settings=SETTINGS,
        ready=ready,
    )
