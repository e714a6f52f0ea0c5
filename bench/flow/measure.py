"""Measure a case of `bench/limits.py`. Needs the packages of Sublet's environment."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from contest import meter
from contest.arena import Arena, Failed, Worker
from contest.contestants import Contestant
from contest.meter import Meter
from contest.workloads import Figure, Told, rate_of
from flow import figures
from flow.cases import BLOCK, CONTESTANTS, SKIPPED, Case
from flow.loads import Load

START_SECONDS, FACTOR = 20.0, 4.0
"""A drain ends after the start of a worker plus so many times the time that the limit allows, or Arena.STALL."""
SLOWEST = 1_000
"""Jobs per second that a drain without a limit has at least."""
SETTLE_SECONDS = 0.3
"""Seconds for a worker to complete the last job after its start."""
CALM_SECONDS, CONNECT_SECONDS, POLL = 2.0, 20.0, 0.1
"""Workers have started when the number of connections has not changed for so long."""


@dataclass(frozen=True)
class Seen:
    """What a drain left to be judged."""

    load: Load
    starts: Told
    ends: Told
    submit_us: float
    drain_us: float
    """µs of Redis's CPU in all."""
    claimed: Callable[[], Sequence[float]]
    """Returns when the jobs were claimed, in ms of Redis's clock."""


def measure(arena: Arena, case: Case) -> list[Figure]:
    """Measure a case, on an empty server. Raises Failed, also if a job was lost or ran twice."""
    arena.flush()
    load, used = case.load, Meter(arena.url)
    contestant = next(each for each in CONTESTANTS if each.name == case.contestant)
    contestant = replace(contestant, variables=load.variables())
    with used.counting() as submitted:
        arena.submit(contestant, "bulk", load.jobs)
    if case.part == "waiting":
        return _watch(arena, contestant, case)
    with used.counting() as drained, _workers(arena, contestant, case.workers) as workers:
        arena.wait(load.jobs, workers, START_SECONDS + FACTOR * _ideal_seconds(load))
        time.sleep(SETTLE_SECONDS)
    starts, ends = arena.tally(), arena.finished()
    ran = len({n for n, _ in starts})
    if ran != load.jobs or len(starts) != load.jobs or (load.ms and len(ends) != load.jobs):
        raise Failed(
            f"{case.row}: {ran} of {load.jobs} jobs ran, in {len(starts)} starts and {len(ends)} ends"
        )
    seen = Seen(
        load,
        starts,
        ends,
        submitted.redis_us,
        drained.redis_us,
        lambda: arena.ask(contestant, "claims")["claimed"],
    )
    return JUDGES[case.part](seen)


def _judge_concurrency(seen: Seen) -> list[Figure]:
    rate, lasted_ms = rate_of(seen.starts) or 0.0, figures.lasted_ms(seen.starts, seen.ends)
    places = 1000 * seen.load.concurrency
    return [
        Figure("jobs_per_s", "jobs/s", rate),
        Figure("share", "%", 100 * rate * seen.load.ms / places),
        Figure("lasted_ms", "ms", lasted_ms),
        Figure("in_use", "%", 100 * rate * lasted_ms / places),
        Figure("most", "jobs", figures.most_at_once(seen.starts, seen.ends)),
        Figure("redis_us", "µs/job", seen.drain_us / seen.load.jobs),
    ]


def _judge_rate(seen: Seen) -> list[Figure]:
    return [
        Figure("jobs_per_s", "jobs/s", figures.steady_rate(seen.starts, BLOCK)),
        Figure("worst_1000", "jobs", figures.busiest(seen.starts, 1000)),
        Figure("worst_100", "jobs", figures.busiest(seen.starts, 100)),
        Figure("redis_us", "µs/job", seen.drain_us / seen.load.jobs),
    ]


def _judge_token(seen: Seen) -> list[Figure]:
    offset = time.time_ns() - time.monotonic_ns()
    starts = [(at + offset) / 1e6 for _, at in seen.starts]
    late = figures.late_ms(starts, seen.claimed(), seen.load.per_ms / seen.load.rate)[SKIPPED:]
    return [Figure("late_ms", "ms", None, samples=tuple(round(ms, 2) for ms in late))]


def _judge_fairness(seen: Seen) -> list[Figure]:
    served = figures.while_all_wait(seen.starts, seen.load.jobs, seen.load.tenant)
    return [
        Figure("jain", "", figures.jain(list(served.values()))),
        Figure("heavy", "%", 100 * served[0] / sum(served.values())),
        Figure("window", "jobs", sum(served.values())),
    ]


def _judge_groups(seen: Seen) -> list[Figure]:
    return [
        Figure("jobs_per_s", "jobs/s", rate_of(seen.starts)),
        Figure("submit_us", "µs/job", seen.submit_us / seen.load.jobs),
        Figure("redis_us", "µs/job", seen.drain_us / seen.load.jobs),
    ]


JUDGES: dict[str, Callable[[Seen], list[Figure]]] = {
    "concurrency": _judge_concurrency,
    "rate": _judge_rate,
    "token": _judge_token,
    "fairness": _judge_fairness,
    "groups": _judge_groups,
}


def _watch(arena: Arena, contestant: Contestant, case: Case) -> list[Figure]:
    used = Meter(arena.url)
    with _workers(arena, contestant, case.workers) as workers:
        arena.wait(1, workers, START_SECONDS)
        _await_connections(arena)
        with used.counting() as counted, used.monitoring() as commands:
            time.sleep(case.seconds)
        if arena.started() != 1:
            raise Failed(f"{case.row}: {arena.started()} jobs started, of 1 that may")
    return [
        Figure("sent", "per s", commands.sent / case.seconds),
        Figure("inside", "per s", commands.inside / case.seconds),
        Figure("redis_ms", "ms per s", counted.redis_us / 1000 / case.seconds),
    ]


def _await_connections(arena: Arena) -> None:
    until, since, before = time.monotonic() + CONNECT_SECONDS, time.monotonic(), ""
    while time.monotonic() - since < CALM_SECONDS:
        told = meter.ask(arena.url, "INFO", "clients").splitlines()
        now = next(line for line in told if line.startswith("connected_clients:"))
        if now != before:
            before, since = now, time.monotonic()
        if time.monotonic() > until:
            raise Failed(f"the workers still connect after {CONNECT_SECONDS:g} s: {before}")
        time.sleep(POLL)


@contextmanager
def _workers(arena: Arena, contestant: Contestant, count: int) -> Iterator[Sequence[Worker]]:
    with ExitStack() as stack:
        yield [stack.enter_context(arena.worker(contestant)) for _ in range(count)]


def _ideal_seconds(load: Load) -> float:
    per_second = [SLOWEST]
    if load.concurrency:
        per_second.append(load.concurrency * 1000 // load.ms)
    if load.rate:
        per_second.append(max(1, load.rate * 1000 // load.per_ms))
    return load.jobs / min(per_second)
