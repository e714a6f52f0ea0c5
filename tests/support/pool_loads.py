"""The loads for a pool: each a scenario for `tests/support/simulated_pool.py`, drawn from a seed."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Draw = Callable[[random.Random], int]
IDLE = 60_000
"""ms of idleness before a burst: longer than anything that a pool remembers."""


class Pool(NamedTuple):
    """A pool's settings; times in ms."""

    max: int = 20
    min: int = 0
    wait: int = 5000
    slots: int = 5
    linger: int = 5000
    arrive: int = 15000

    @property
    def settings(self) -> str:
        """The settings as the script `pool` takes them."""
        return "queues=q invoker=process " + " ".join(
            f"{name}={value}" for name, value in self._asdict().items()
        )


class Job(NamedTuple):
    """When a job arrives, and how long it runs: ms."""

    at: int
    takes: int


USUAL = Pool()


@dataclass(frozen=True)
class Scenario:
    """A load, its pool, and the faults."""

    title: str
    jobs: Sequence[Job]
    seconds: int
    pool: Pool = USUAL
    tick: int = 5000
    cold: tuple[int, int] = (300, 3000)
    lost: float = 0.03
    """The share of invocations after which no worker comes."""
    refused: float = 0.0
    """The share of invocations that fail."""
    killed: float = 0.0
    """Workers killed per second, while jobs arrive."""
    callers: int = 2

    @property
    def last(self) -> int:
        """When the last job arrives."""
        return max(job.at for job in self.jobs)


def about(ms: float, spread: float = 0.5) -> Draw:
    """Run times around a mean, some of them much longer (log-normal)."""
    return lambda r: max(1, round(r.lognormvariate(math.log(ms) - spread**2 / 2, spread)))


def poisson(r: random.Random, rate: Callable[[float], float], begin: float, end: float) -> Iterator[int]:
    """Moments in ms, with `rate` arrivals per second at each moment between these two."""
    at = begin
    while (at := at + r.expovariate(rate(at))) < end:
        yield round(at * 1000)


def steady(r: random.Random, rate: float, takes: Draw, begin: float, end: float) -> list[Job]:
    """Random arrivals at a constant rate."""
    return [Job(at, takes(r)) for at in poisson(r, lambda _: rate, begin, end)]


def burst(r: random.Random, n: int, takes: Draw, at: int = IDLE) -> list[Job]:
    """Arrivals all at once."""
    return [Job(at, takes(r)) for _ in range(n)]


def ramp(
    r: random.Random, low: float, high: float, begin: float, top: float, end: float, takes: Draw
) -> list[Job]:
    """Arrivals whose rate grows by the same factor each second until `top`, and stays there."""
    growth = math.log(high / low) / (top - begin)
    return [
        Job(at, takes(r))
        for at in poisson(r, lambda t: low * math.exp(growth * min(t, top) - growth * begin), begin, end)
    ]


def scenarios(seed: int) -> dict[str, Scenario]:
    """All loads, by name."""
    r = random.Random(seed)
    second, long = about(1000), about(60_000, 0.3)
    return {
        "burst": Scenario("600 jobs of 1 s at once, after idleness", burst(r, 600, second), 130, Pool(max=40)),
        "burst, patient": Scenario("the same, with 30 s to begin them in", burst(r, 600, second), 150, Pool(max=40, wait=30_000)),
        "burst, rare ticks": Scenario("the same, ticks once a minute", burst(r, 600, second), 190, Pool(max=40), tick=60_000),
        "trickle": Scenario(
            "300 jobs of 1 s at once, then 2 jobs of 0.2 s a second",
            burst(r, 300, second, at=1000) + steady(r, 2, about(200), 2, 110), 140, Pool(max=40),
        ),
        "steady": Scenario("8 jobs of 1 s a second, workers with two slots", steady(r, 8, second, 1, 61), 90, Pool(slots=2)),
        "steady, short": Scenario("30 jobs of 5 ms a second", steady(r, 30, lambda _: 5, 1, 16), 40),
        "steady, long": Scenario("a job of 60 s every 2 s", steady(r, 0.5, long, 1, 200), 330),
        "ramp": Scenario(
            "from 0.3 to 6 jobs of 1 s a second in 2 minutes", ramp(r, 0.3, 6, 1, 121, 151, second), 190, Pool(slots=2)
        ),
        "ramp, one at a time": Scenario(
            "the same, with workers that run one job at a time", ramp(r, 0.3, 6, 1, 121, 151, second), 190, Pool(slots=1, max=30)
        ),
        "stop": Scenario("12 jobs of 1 s a second, which stop after 30 s", steady(r, 12, second, 1, 30), 100),
        "sparse": Scenario("a job of 1 s each minute", [Job(5000 + 60_000 * i, 1000) for i in range(10)], 630),
        "long": Scenario("100 jobs of 60 s at once, the first ones ever", burst(r, 100, long, at=1000), 260, Pool(max=30)),
        "blocked": Scenario(
            "60 jobs of 60 s among short ones, which were all there was",
            burst(r, 100, about(20), at=1000) + burst(r, 60, lambda _: 60_000, at=20_000) + steady(r, 8, about(20), 21, 51), 150,
        ),
        "failing invoker": Scenario("6 jobs a second, half of the calls fail", steady(r, 6, second, 1, 61), 100, refused=0.5),
        "too few": Scenario("8 jobs of 1 s a second, one worker at most", steady(r, 8, second, 1, 31), 100, Pool(max=1)),
        "killed": Scenario("6 jobs a second, a worker is killed every 10 s", steady(r, 6, second, 1, 61), 150, killed=0.1),
        "slow starts": Scenario(
            "6 jobs a second, workers come after 17 to 22 s",
            steady(r, 6, second, 1, 61), 120, cold=(17_000, 22_000),
        ),
        "least": Scenario("never fewer than two workers; 200 jobs at once", burst(r, 200, second, at=30_000), 80, Pool(min=2)),
    }  # fmt: skip
