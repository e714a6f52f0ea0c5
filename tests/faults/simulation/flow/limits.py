"""The limits of a queue and its groups, and the tokens that its jobs have taken, in plain Python and apart from the scripts."""

import math
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from tests.faults.simulation.request import must

KEPT = 40
"""How many changes of a rate's tokens are kept: windows of up to so many are checked."""


class Rate(NamedTuple):
    """So many tokens in `per` ms, of which `burst` may be saved up."""

    n: float
    per: float
    burst: float

    @property
    def ms(self) -> float:
        """The ms for each token."""
        return self.per / self.n


class Limits(NamedTuple):
    """What applies to a queue, or to a group."""

    concurrency: float = math.inf
    rate: Rate | None = None


@cache
def words_of(text: str) -> dict[str, str]:
    """The settings in a text, by name."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


@cache
def limits_of(text: str, prefix: str = "") -> Limits:
    """The limits in a text of settings: a queue's own, or with the prefix `group_` those for each of its groups."""
    words = words_of(text)
    rate, per = (float(words.get(prefix + name, 0)) for name in ("rate", "per"))
    burst = float(words.get(f"{prefix}burst", 0)) or (per and max(1.0, rate * 100 // per))
    return Limits(
        float(words.get(f"{prefix}concurrency", math.inf)), Rate(rate, per, burst) if rate and per else None
    )


def limits_of_group(name: str, own: str, queue: str) -> Limits:
    """The limits of a group, by its own settings and those of its queue. The jobs without a group have none."""
    if not name:
        return Limits()
    mine, usual = limits_of(own), limits_of(queue, "group_")
    own_one = mine.concurrency < math.inf
    return Limits(mine.concurrency if own_one else usual.concurrency, mine.rate or usual.rate)


@dataclass
class Bucket:
    """The tokens of a queue or a group. `full_at` is the moment (ms) at which all are there again."""

    rate: Rate | None = None
    full_at: float = 0.0
    used: list[tuple[int, float]] = field(default_factory=list)
    """When and how many tokens were taken since the rate was set; a corrected cost may give some back."""

    def allowed_at(self, cost: float) -> float:
        """When a job of this cost may start. One above the burst needs them all."""
        return self.full_at - max(0.0, self.rate.burst - cost) * self.rate.ms if self.rate else 0.0

    def start(self, owner: str, now: int, cost: float, slack: float = 0.0) -> None:
        """A job starts. No window that ends now may have had more than the burst and the tokens that came in it."""
        if self.rate:
            total = min(cost, self.rate.burst)
            for moment, tokens in reversed(self.used):
                total += tokens
                most = self.rate.burst + (now - moment + slack) / self.rate.ms
                must(
                    total < most + 1e-6,
                    f"{owner} used {total:g} tokens in {now - moment} ms, expected at most {most:g}",
                )
        self.charge(now, cost)

    def charge(self, now: int, tokens: float) -> None:
        """Take tokens, or give some back."""
        if self.rate:
            self.full_at = min(max(self.full_at, now) + tokens * self.rate.ms, now + 1e12)
            self.used = [*self.used, (now, tokens)][-KEPT:]

    def change(self, rate: Rate | None, stored: float) -> None:
        """Another rate applies from now on. Without one nothing is counted, so the stored moment counts afterwards."""
        if rate != self.rate:
            self.full_at = self.full_at if self.rate else stored
            self.rate, self.used = rate, []
