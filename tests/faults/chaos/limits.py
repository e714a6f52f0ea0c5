"""Judge places, tokens and turns by the story of the jobs, which Redis wrote by its own clock. No I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sublet.model import Job

WORKED = ("completed", "failed")
LOST = "lease_expired"


class Span(NamedTuple):
    """One attempt: from its claim to whatever ended it, in ms since 1970 by Redis's clock."""

    tenant: str
    begin: int
    end: int
    code: str


class Window(NamedTuple):
    """The time that is judged, without the times when Redis was down, in ms since 1970."""

    begin: int
    end: int
    down: tuple[tuple[int, int], ...] = ()

    def overlap(self, begin: int, end: int) -> int:
        """How much of a span lies in the window while Redis was up."""

        def common(first: int, last: int) -> int:
            return max(0, min(end, last, self.end) - max(begin, first, self.begin))

        return common(self.begin, self.end) - sum(common(*each) for each in self.down)

    @property
    def up(self) -> int:
        """The ms in which Redis was up."""
        return self.overlap(self.begin, self.end)


def spans_of(jobs: Iterable[Job], queue: str) -> list[Span]:
    """The attempts of a queue's jobs, in the order of their claims. Raises ValueError if Redis kept only some."""
    found = []
    for job in jobs:
        if job.queue != queue:
            continue
        if len(job.attempts) != job.attempt:
            raise ValueError(f"{job.id}: Redis kept {len(job.attempts)} of {job.attempt} attempts")
        for each in job.attempts:
            begin, end = (round(at.timestamp() * 1000) for at in (each.claimed_at, each.ended_at))
            found.append(Span(job.group or "", begin, end, each.code))
    return sorted(found, key=lambda span: span.begin)


def most_at_once(spans: Iterable[Span]) -> int:
    """The most leases at a time. One that ends in the ms in which another begins has given its place back."""
    running = most = 0
    for _, change in sorted(
        event for span in spans for event in ((span.begin, 1), (max(span.end, span.begin + 1), -1))
    ):
        running += change
        most = max(most, running)
    return most


def before_token(spans: Iterable[Span], ms: float, burst: int) -> int:
    """How many attempts began before their token came: one comes every `ms`, and `burst` are saved up."""
    full_at, early = 0.0, 0
    for span in spans:
        early += span.begin < full_at - (burst - 1) * ms - 1e-3
        full_at = max(full_at, span.begin) + ms
    return early


def turns(spans: Iterable[Span], window: Window, tenants: Sequence[str]) -> dict[str, int]:
    """How many attempts of each tenant began in the window."""
    counted = Counter(span.tenant for span in spans if window.begin <= span.begin < window.end)
    return {tenant: counted[tenant] for tenant in tenants}


def unfairness(turns: Mapping[str, int]) -> float:
    """By what part of an equal share the turns of a tenant differ from it at most."""
    share = sum(turns.values()) / len(turns)
    return max(abs(count - share) for count in turns.values()) / share if share else 1.0


def use_of_places(spans: Sequence[Span], window: Window, places: int, job_ms: float) -> float:
    """Which part of the work that the places allow was done: that of jobs of `job_ms`, in the time when Redis
    was up, but for places that leases of killed and frozen workers held.
    """
    done = sum(span.code in WORKED and window.overlap(span.end - 1, span.end) for span in spans)
    lost = sum(window.overlap(span.begin, span.end) for span in spans if span.code == LOST)
    return done * job_ms / max(1, places * window.up - lost)


def use_of_tokens(spans: Sequence[Span], window: Window, ms: float) -> float:
    """Which part of the tokens that came while Redis was up was taken."""
    return sum(window.begin <= span.begin < window.end for span in spans) * ms / max(1, window.up)
