"""The cases of `bench/limits.py`: which contestant, under which load, with how many workers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from contest.contestants import Contestant
from flow.loads import Load

CONTESTANTS = (
    Contestant("sublet", "limits_sublet.py", "sublet", ours=True),
    Contestant("bullmq", "limits_bullmq.mjs", "bullmq"),
)
PARTS = ("concurrency", "rate", "waiting", "token", "fairness", "groups")
BLOCK = 500
"""Jobs: a rate is measured from the start of one block to that of another."""
SKIPPED = 5
"""Tokens that do not count, because the workers are still starting."""


@dataclass(frozen=True)
class Case:
    """A contestant under a load: a row of the part's table."""

    part: str
    row: str
    contestant: str
    load: Load
    workers: int = 1
    seconds: float = 0.0
    """How long to watch, where the jobs do not say it."""


def all_cases(scale: float = 1.0) -> list[Case]:
    """Return all cases; those of a part side by side. `scale` makes the loads smaller."""

    def of(n: int) -> int:
        return max(1, round(n * scale))

    return [*_concurrency(of), *_rate(of), *_waiting(6.0 * scale), *_token(of), *_fairness(of), *_groups(of)]


def _concurrency(of: Callable[[int], int]) -> Iterator[Case]:
    load = Load(of(4_000), ms=5, concurrency=10)
    for workers in (1, 4):
        for name in ("sublet", "bullmq"):
            yield Case("concurrency", f"{name}, {_count(workers)}", name, load, workers)


def _rate(of: Callable[[int], int]) -> Iterator[Case]:
    for workers in (1, 4):
        for name, rate, per_ms in (("sublet", 500, 1000), ("bullmq", 500, 1000), ("bullmq", 50, 100)):
            load = Load(max(2 * BLOCK + 1, of(3_000)), rate=rate, per_ms=per_ms)
            yield Case("rate", f"{name}, {rate} per {per_ms} ms, {_count(workers)}", name, load, workers)


def _waiting(seconds: float) -> Iterator[Case]:
    for what, load in {"a token": Load(100, rate=1, per_ms=60_000, burst=1), "a job": Load(1)}.items():
        for name in ("sublet", "bullmq"):
            yield Case("waiting", f"{name}, 4 workers wait for {what}", name, load, 4, seconds)


def _token(of: Callable[[int], int]) -> Iterator[Case]:
    load = Load(SKIPPED + 1 + of(110), rate=1, per_ms=50, burst=1)
    for workers in (1, 4):
        for name in ("sublet", "bullmq"):
            yield Case("token", f"{name}, {_count(workers)}", name, load, workers)


def _fairness(of: Callable[[int], int]) -> Iterator[Case]:
    load = Load(max(4_000, of(20_000)), tenants=100, heavy=True)
    yield Case("fairness", "sublet, a group for each tenant", "sublet", replace(load, grouped=True))
    yield Case("fairness", "sublet, no groups", "sublet", load)
    yield Case("fairness", "bullmq, no groups", "bullmq", load)


def _groups(of: Callable[[int], int]) -> Iterator[Case]:
    load = Load(of(20_000))
    yield Case("groups", "sublet, no groups", "sublet", load)
    for tenants in (1, 100, 10_000):
        row = f"sublet, {tenants:,} group{'s' * (tenants > 1)}"
        yield Case("groups", row, "sublet", replace(load, tenants=tenants, grouped=True))
    yield Case("groups", "bullmq, no groups", "bullmq", load)


def _count(workers: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}"
