"""The phases of a round: submit, drain, start a job on an idle queue.

A phase begins on an empty server. A pilot run measures how many jobs it has.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from contest.arena import Arena, Failed
from contest.contestants import Contestant
from contest.meter import Counted, Meter

LEAST, MOST = 100, 150_000
WARM = 0.2
"""The share of starts before the clock of a drain runs."""
PILOT_ONE, PILOT_BULK, PILOT_SECONDS = 200, 1_000, 1.0
WARM_UP, SAMPLES = 20, 300
LATENCY_SECONDS = 15.0
MONITORED = 1_000
SETTLE_SECONDS = 0.3
"""Seconds for a worker to complete the last job after its start."""
START_SECONDS, DRAIN_FACTOR = 20.0, 8
"""A drain ends after a worker's start and so many expected durations, or Arena.STALL."""

Told = list[tuple[int, int]]


@dataclass(frozen=True)
class Figure:
    """One value of a phase."""

    workload: str
    unit: str
    value: float | None
    note: str = ""
    samples: tuple[float, ...] = ()
    lost: int = 0
    twice: int = 0


@dataclass
class Rates:
    """A contestant's jobs per second: submitted one by one, in bulk, drained."""

    one: float
    bulk: float
    drain: float

    def learn(self, figures: Sequence[Figure]) -> None:
        for figure in figures:
            if figure.value:
                self.one = figure.value if figure.workload == "enqueue_one" else self.one
                self.bulk = figure.value if figure.workload == "enqueue_bulk" else self.bulk
                self.drain = figure.value if figure.workload == "drain_1" else self.drain


@dataclass(frozen=True)
class Turn:
    """One contestant in an arena."""

    arena: Arena
    contestant: Contestant
    rates: Rates
    seconds: float
    samples: int = SAMPLES

    def jobs(self, rate: float) -> int:
        """Return the number of jobs that take `seconds` at a rate."""
        return max(LEAST, min(MOST, int(rate * self.seconds)))


def pilot(arena: Arena, contestant: Contestant) -> Rates:
    arena.flush()
    one = PILOT_ONE / arena.submit(contestant, "one", PILOT_ONE)
    bulk = PILOT_BULK / arena.submit(contestant, "bulk", PILOT_BULK, PILOT_ONE)
    with arena.worker(contestant) as worker:
        arena.wait(1, [worker])
        arena.wait(PILOT_ONE + PILOT_BULK, [worker], PILOT_SECONDS)
        worker.kill()
    drain = rate_of(arena.tally())
    if drain is None:
        raise Failed(f"{contestant.name}: the worker started {arena.started()} jobs: {worker.said()}")
    return Rates(one, bulk, drain)


def enqueue_one(turn: Turn) -> Iterator[Figure]:
    yield from _enqueued(turn, "one", turn.jobs(turn.rates.one))


def enqueue_bulk(turn: Turn) -> Iterator[Figure]:
    """Submit jobs the fastest way, and measure the memory of each."""
    yield from _enqueued(turn, "bulk", turn.jobs(turn.rates.bulk), "memory_pending")


def _enqueued(turn: Turn, kind: str, n: int, memory: str = "") -> Iterator[Figure]:
    turn.arena.flush()
    with Meter(turn.arena.url).counting() as counted:
        seconds = turn.arena.submit(turn.contestant, kind, n)
    yield Figure(f"enqueue_{kind}", "jobs/s", n / seconds)
    if memory:
        yield Figure(memory, "bytes/job", counted.memory / n)


def ordinary(turn: Turn) -> Iterator[Figure]:
    """Measure Redis's load per job, for jobs submitted one by one."""
    n = max(LEAST, turn.jobs(min(turn.rates.one, turn.rates.drain)) // 2)
    submitted, drained, drain = _life(turn, "one", n)
    yield Figure("redis_us_ordinary", "µs/job", (submitted.redis_us + drained.redis_us) / n, *_fate(drain))
    yield Figure("bytes_moved", "bytes/job", (submitted.bytes_moved + drained.bytes_moved) / n)
    few = min(n, MONITORED)
    with Meter(
        turn.arena.url
    ).monitoring() as counts:  # separately, because it loads the server as much as the work
        _life(turn, "one", few)
    yield Figure("commands", "per job", counts.sent / few)
    yield Figure("commands_inside", "per job", counts.inside / few)


def drain_1(turn: Turn) -> Iterator[Figure]:
    """Drain with one worker; measure Redis's load and the memory of finished jobs."""
    n = turn.jobs(turn.rates.drain)
    submitted, drained, drain = _life(turn, "bulk", n)
    yield Figure("drain_1", "jobs/s", rate_of(drain.tally), drain.note, (), drain.lost, drain.twice)
    yield Figure("redis_us_bulk", "µs/job", (submitted.redis_us + drained.redis_us) / n)
    yield Figure("memory_finished", "bytes/job", (submitted.memory + drained.memory) / n)


def drain_2(turn: Turn) -> Iterator[Figure]:
    """Drain with two worker processes; the clock starts when both work."""
    n = turn.jobs(1.5 * turn.rates.drain)
    turn.arena.flush()
    turn.arena.submit(turn.contestant, "bulk", n)
    drain = _drain(turn, n, 2)
    both = max((tally[0][1] for tally in turn.arena.tallies() if tally), default=0)
    alone = "" if all(turn.arena.tallies()) else "only one of two workers found jobs"
    note = "; ".join(filter(None, [drain.note, alone]))
    yield Figure("drain_2", "jobs/s", rate_of(drain.tally, since=both), note, (), drain.lost, drain.twice)


def latency(turn: Turn) -> Iterator[Figure]:
    """Measure from submit to the task's first line, with a waiting worker and an empty queue."""
    turn.arena.flush()
    with turn.arena.worker(turn.contestant):
        sent = turn.arena.latency(turn.contestant, WARM_UP + turn.samples, 0, LATENCY_SECONDS)
        time.sleep(SETTLE_SECONDS)
        at = dict(reversed(turn.arena.tally()))
    taken = tuple(round((at[n] - sent[n]) / 1e6, 4) for n in range(WARM_UP, len(sent)) if n in at)
    if len(taken) < 2:
        raise Failed(
            f"{turn.contestant.name}: {len(sent)} jobs submitted one at a time, {len(at)} started in time"
        )
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    note = "" if len(taken) >= turn.samples else f"{len(taken)} samples in {LATENCY_SECONDS:g} s"
    for share in (50, 95, 99):
        yield Figure(f"latency_p{share}", "ms", cuts[share - 1], note)
    yield Figure("latency", "ms", cuts[49], note, taken)


PHASES: dict[str, Callable[[Turn], Iterator[Figure]]] = {
    "enqueue_one": enqueue_one,
    "enqueue_bulk": enqueue_bulk,
    "ordinary": ordinary,
    "drain_1": drain_1,
    "drain_2": drain_2,
    "latency": latency,
}
WORKLOADS = {
    "enqueue_one": ("enqueue_one",),
    "enqueue_bulk": ("enqueue_bulk", "memory_pending"),
    "ordinary": ("redis_us_ordinary", "bytes_moved", "commands", "commands_inside"),
    "drain_1": ("drain_1", "redis_us_bulk", "memory_finished"),
    "drain_2": ("drain_2",),
    "latency": ("latency_p50", "latency_p95", "latency_p99"),
}
ONLY_ONCE = ("ordinary",)
COSTS = (
    "memory_pending",
    "memory_finished",
    "redis_us_ordinary",
    "redis_us_bulk",
    "commands",
    "commands_inside",
    "bytes_moved",
)
"""Workloads measured only without persistence."""


@dataclass(frozen=True)
class Drain:
    """The result of a drain."""

    tally: Told
    jobs: int

    @property
    def lost(self) -> int:
        return self.jobs - len({n for n, _ in self.tally})

    @property
    def twice(self) -> int:
        return sum(count - 1 for count in Counter(n for n, _ in self.tally).values())

    @property
    def note(self) -> str:
        ran = f"ran {self.jobs - self.lost} of {self.jobs}" if self.lost else ""
        return ", ".join(filter(None, [ran, f"{self.twice} twice" if self.twice else ""]))


def rate_of(tally: Told, *, since: int = 0) -> float | None:
    """Return the jobs per second from the warm-up's end (WARM), or `since` (ns) if later, to the last start."""
    first: dict[int, int] = {}
    for n, at in tally:
        first.setdefault(n, at)
    in_order = sorted(first.values())
    moments = [at for at in in_order[int(WARM * len(in_order)) :] if at >= since]
    return (len(moments) - 1) * 1e9 / (moments[-1] - moments[0]) if len(moments) > 1 else None


def _life(turn: Turn, kind: str, n: int) -> tuple[Counted, Counted, Drain]:
    meter = Meter(turn.arena.url)
    turn.arena.flush()
    with meter.counting() as submitted:
        turn.arena.submit(turn.contestant, kind, n)
    with meter.counting() as drained:
        drain = _drain(turn, n, 1)
    return submitted, drained, drain


def _drain(turn: Turn, n: int, workers: int) -> Drain:
    with ExitStack() as stack:
        started = [stack.enter_context(turn.arena.worker(turn.contestant, i + 1)) for i in range(workers)]
        turn.arena.wait(n, started, START_SECONDS + DRAIN_FACTOR * n / turn.rates.drain)
        time.sleep(SETTLE_SECONDS)
    return Drain(turn.arena.tally(), n)


def _fate(drain: Drain) -> tuple[str, tuple[float, ...], int, int]:
    return drain.note, (), drain.lost, drain.twice
