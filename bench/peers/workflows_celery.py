"""Celery with chords and chains: as many processes as cores, or a thread for each slot (BENCH_VARIANT=threads)."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from celery import Celery, chain, chord
from work import SLOTS, URL, finished, main, tally

sys.path.append(str(Path(__file__).parents[1]))

from graphs.loads import Load

THREADS = os.environ.get("BENCH_VARIANT") == "threads"
POOL, CONCURRENCY = ("threads", SLOTS) if THREADS else ("prefork", os.cpu_count() or 1)
PREFETCH = 1 if THREADS else 128
"""Prefetched jobs per slot: for processes the advice of its guide."""
LEAN = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
SETTINGS = (
    f"-P {POOL} -c {CONCURRENCY} {' '.join(LEAN)}, prefetch multiplier {PREFETCH}; Redis as broker and result backend; "
    "`chord` (the callback gets the results as its argument), `chain` of `si`; defaults otherwise"
)
LOAD = Load.given()
app = Celery("bench", broker=URL, backend=URL)
app.conf.worker_prefetch_multiplier = PREFETCH
app.conf.broker_connection_retry_on_startup = True  # the default behaviour, without a warning


@app.task(name="step")
def step(n: int) -> int:
    tally(n)
    finished(n)
    return n


@app.task(name="callback")
def callback(results: Sequence[int], n: int, numbers: int) -> int:
    tally(n)
    if (len(results), total := sum(results)) != (numbers, sum(range(n - numbers, n))):
        raise ValueError(f"{len(results)} results with the sum {total}")
    finished(n)
    return total


def submit_bulk(numbers: Sequence[int]) -> None:
    for workflow in range(LOAD.workflows):
        own = LOAD.numbers(workflow)
        if LOAD.shape == "fan":
            chord([step.s(n) for n in own[:-1]])(callback.s(own[-1], LOAD.size))
        else:
            chain(*(step.si(n) for n in own)).apply_async()
        if LOAD.paced:
            LOAD.await_end(workflow)


def submit_one(n: int) -> None:
    submit_bulk([n])


def ready() -> None:
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=3)
    app.backend.client.ping()


def work() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    os.chdir(Path(__file__).parent)
    options = ["--pool", POOL, "--concurrency", str(CONCURRENCY), "--loglevel", "WARNING", *LEAN]
    os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "workflows_celery", "worker", *options])


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_one,
        packages=["celery", "kombu", "redis", "hiredis"],
        settings=SETTINGS,
        ready=ready,
    )
