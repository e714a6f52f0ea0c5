"""Our own targets, for `performance.py`."""

from collections.abc import Callable
from dataclasses import dataclass

from contest.figures import is_peer

Reached = Callable[[float, float | None], bool]
"""Takes our figure, and how many times better it is than the peer's (None without a peer)."""
Among = Callable[[str, str], bool]
NOT_PYTHON = ("bullmq",)


@dataclass(frozen=True)
class Goal:
    """A target: a figure of ours, or a ratio to the best of some peers."""

    words: str
    workload: str
    target: str
    reached: Reached
    ours: str = "sublet"
    among: Among = is_peer


def _times(least: float) -> Reached:
    return lambda ours, ratio: ratio is not None and ratio >= least


def _at_least(least: float) -> Reached:
    return lambda ours, ratio: ours >= least


def _at_most(most: float) -> Reached:
    return lambda ours, ratio: ours <= most


def _bullmq(name: str, workload: str) -> bool:
    return name == "bullmq"


def _python(name: str, workload: str) -> bool:
    return is_peer(name, workload) and name not in NOT_PYTHON


def _huey(name: str, workload: str) -> bool:
    return name in ("huey", "huey processes")


GOALS = (
    Goal("drain, one worker, jobs/s", "drain_1", "2 × BullMQ", _times(2), among=_bullmq),
    Goal("the same, beside Python", "drain_1", "10 × the best", _times(10), among=_python),
    Goal(
        "drain of plain functions, jobs/s", "drain_1", "3 × the better Huey", _times(3), "sublet plain", _huey
    ),
    Goal("enqueue in bulk, jobs/s", "enqueue_bulk", "60,000", _at_least(60_000)),
    Goal("enqueue one by one, jobs/s", "enqueue_one", "1.1 × the best", _times(1.1)),
    Goal("submit to start, p50, ms", "latency_p50", "1", _at_most(1)),
    Goal("submit to start, p99, ms", "latency_p99", "3", _at_most(3)),
    Goal("Redis CPU a job, submitted in bulk, µs", "redis_us_bulk", "30", _at_most(30)),
    Goal("Redis CPU a job, submitted one by one, µs", "redis_us_ordinary", "60", _at_most(60)),
    Goal("memory of a pending job, a million of them, bytes", "memory_pending_1m", "700", _at_most(700)),
    Goal("worker killed, all run again elsewhere, s", "crash_last", "31 (lease and 1 s)", _at_most(31)),
    Goal("the same, worker restarted on its host, s", "crash_last", "1", _at_most(1), "sublet restarted"),
    Goal("drain rate, 1 M pending against 1 k", "backlog_ratio", "0.97", _at_least(0.97)),
    Goal("longest hold of Redis by one script, ms", "hold", "5", _at_most(5)),
)
