"""Measure a case of `bench/workflows.py`. Needs the packages of Sublet's environment."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import redis
from contest.arena import Arena, Failed, Worker
from contest.meter import Meter
from contest.workloads import Figure
from graphs.cases import CONTESTANTS, Case
from graphs.loads import Load

STALL_SECONDS, POLL = 60.0, 0.01
LOGGED_US = 100
LOGGED_MOST = 20_000
Moments = dict[int, int]
"""Jobs, and a moment of each in ns."""


@dataclass(frozen=True)
class Seen:
    """The moments and counters of a run."""

    load: Load
    starts: Moments
    ends: Moments
    submit_seconds: float
    redis_us: float
    """µs of Redis's CPU in all."""
    hold_ms: float
    """The longest command or script."""


def measure(arena: Arena, case: Case) -> Sequence[Figure]:
    """Measure a case. Raises Failed, also if a job was lost, or ran twice or too early."""
    arena.flush()
    load = case.load
    contestant = next(each for each in CONTESTANTS if each.name == case.contestant)
    contestant = replace(contestant, variables={**contestant.variables, **load.variables()})
    with Meter(arena.url).counting() as used, _holds(arena.url) as holds:
        if load.paced:
            with arena.worker(contestant) as worker:
                seconds = arena.submit(contestant, "bulk", load.jobs)
                _await_ends(arena, load.jobs, worker)
        else:
            seconds = arena.submit(contestant, "bulk", load.jobs)
            with arena.worker(contestant) as worker:
                _await_ends(arena, load.jobs, worker)
    seen = Seen(
        load, dict(arena.tally()), dict(arena.finished()), seconds, used.redis_us, max(holds, default=0.0)
    )
    _check(case.row, seen, len(arena.tally()), len(arena.finished()))
    return JUDGES[case.part](seen)


def _await_ends(arena: Arena, jobs: int, worker: Worker) -> None:
    before, changed = 0, time.monotonic()
    while (ended := len(arena.finished())) < jobs and time.monotonic() - changed < STALL_SECONDS:
        worker.check()
        if ended != before:
            before, changed = ended, time.monotonic()
        time.sleep(POLL)


def _check(row: str, seen: Seen, starts: int, ends: int) -> None:
    jobs = seen.load.jobs
    if len(seen.starts) != jobs or starts != jobs or ends != jobs:
        raise Failed(f"{row}: {len(seen.starts)} of {jobs} jobs ran, in {starts} starts and {ends} ends")
    if early := [ms for ms in gaps_ms(seen) if ms < 0]:
        raise Failed(f"{row}: {len(early)} jobs started before those that they wait for had ended")


@contextmanager
def _holds(url: str) -> Iterator[list[float]]:
    """Collect the ms for which commands and scripts held the server."""
    holds: list[float] = []
    with redis.Redis.from_url(url) as raw:
        raw.config_set("slowlog-log-slower-than", LOGGED_US)
        raw.config_set("slowlog-max-len", LOGGED_MOST)
        raw.slowlog_reset()
        yield holds
        holds += [
            one["duration"] / 1000 for one in raw.slowlog_get(LOGGED_MOST) if b"SLOWLOG" not in one["command"]
        ]


def gaps_ms(seen: Seen) -> list[float]:
    """Return the ms from the last awaited end to the start of each job that waits."""
    return [
        (seen.starts[after] - max(seen.ends[n] for n in before)) / 1e6
        for before, after in seen.load.followers()
    ]


def _judge_drain(seen: Seen) -> list[Figure]:
    lasted = max(seen.ends.values()) - min(seen.starts.values())
    return [
        Figure("jobs_per_s", "jobs/s", seen.load.jobs * 1e9 / lasted),
        Figure("submit_per_s", "jobs/s", seen.load.jobs / seen.submit_seconds),
        Figure("redis_us", "µs/job", seen.redis_us / seen.load.jobs),
        Figure("hold_ms", "ms", seen.hold_ms),
    ]


def _judge_gap(seen: Seen) -> list[Figure]:
    return [Figure("gap_ms", "ms", None, samples=tuple(round(ms, 3) for ms in gaps_ms(seen)))]


def _judge_wide(seen: Seen) -> list[Figure]:
    (gap,), callback = gaps_ms(seen), seen.load.size
    reading = Figure("read_ms", "ms", (seen.ends[callback] - seen.starts[callback]) / 1e6)
    return [*_judge_drain(seen), Figure("gap_ms", "ms", gap), reading]


JUDGES: dict[str, Callable[[Seen], Sequence[Figure]]] = {
    "fan": _judge_drain,
    "chain": _judge_drain,
    "fan_paced": _judge_gap,
    "chain_paced": _judge_gap,
    "wide": _judge_wide,
}
