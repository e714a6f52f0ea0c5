"""RQ: a worker that runs its jobs itself, one at a time (SimpleWorker), or forks for each
(BENCH_VARIANT=fork)."""

import os
import time
from collections.abc import Sequence

from redis import Redis
from rq import Queue, SimpleWorker, Worker
from work import URL, finished, main, tally, text

FORKS = os.environ.get("BENCH_VARIANT") == "fork"
BATCH = 500
SETTINGS = (
    f"{'Worker: forks for each job (default)' if FORKS else 'SimpleWorker: no fork, as advised for very short jobs'}; "
    f"one job at a time; pickle, result_ttl 500 s (defaults); logs warnings only; bulk = enqueue_many of {BATCH}"
)
connection = Redis.from_url(URL)
queue = Queue("bench", connection=connection)


def noop(n: int, text: str) -> int:
    tally(n)
    return n


def slow(n: int) -> None:
    tally(n)
    time.sleep(1)
    finished(n)


def submit_one(n: int) -> None:
    queue.enqueue("with_rq.noop", n, text(n))


def submit_slow(n: int) -> None:
    queue.enqueue("with_rq.slow", n)


def submit_bulk(numbers: Sequence[int]) -> None:
    for i in range(0, len(numbers), BATCH):
        queue.enqueue_many([Queue.prepare_data("with_rq.noop", (n, text(n))) for n in numbers[i : i + BATCH]])


def work() -> None:
    worker = (Worker if FORKS else SimpleWorker)([queue], connection=connection)
    worker.work(logging_level="WARNING")


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_slow,
        packages=["rq", "redis", "hiredis"],
        settings=SETTINGS,
        ready=connection.ping,
    )
