"""The small worlds of flow control: two jobs of a group, two workers, a cancel, a changed limit, one fault, in every order.

They are walked as those of `exhaustive`, with the same checks after each script.
"""

from typing import Any, NamedTuple

from sublet.model import Lease, Submission
from sublet.protocol import flow, verbs
from sublet.protocol.scripts import Call
from tests.faults.simulation.exhaustive import BASE, ENDINGS, Actor, Count, walk
from tests.faults.simulation.history import Settings

JOBS = ("0-a", "0-b")
RULES = "group=g backoff=1000:1:1000"


class Cast(NamedTuple):
    """The parameters: the limits before and after, and how the two workers end their attempts."""

    name: str
    before: str
    after: str
    one: tuple[str, ...]
    two: tuple[str, ...] = ("complete",)
    cancels: bool = False
    """Whether an operator cancels a job that runs for the first time."""
    faults: int = 1
    spent: int = 0
    """The cost that the first worker reports, if its calls contain `spend`."""


CASTS = (
    Cast(
        "a group gets a second place",
        "group_concurrency=1",
        "group_concurrency=2",
        ("complete",),
        cancels=True,
    ),
    Cast("a queue loses a place", "concurrency=2", "concurrency=1", ("fail",)),
    Cast(
        "a rate doubles, and a cost is corrected",
        "rate=1 per=20000",
        "rate=2 per=20000",
        ("spend", "release"),
        cancels=True,
        faults=0,
        spent=2,
    ),
)


class Member(NamedTuple):
    """The position of an actor: a producer, a worker, an operator, or time."""

    name: str
    next: str
    """The next call; empty after the last one."""
    cast: Cast
    left: int = 1
    """The remaining claims, if they take nothing."""
    then: tuple[str, ...] = ()
    """A worker's calls once it has a job."""
    lease: Lease | None = None

    def call(self) -> Call[Any]:
        """The next request; always the same for this position."""
        if self.next == "submit":
            return verbs.submit(BASE, [Submission(i, "q", "t", RULES, b"{}") for i in JOBS])
        if self.next == "cancel":  # while it runs for the first time, or afterwards
            return verbs.cancel(BASE, JOBS[0], 1)
        if self.next == "configure":
            return verbs.configure(BASE, "q", 1, self.cast.after)
        if self.next == "claim":
            return Actor(self.name, "claim", self.left).call()
        assert self.lease
        if self.next == "spend":
            return flow.spend(BASE, [(self.lease, self.cast.spent)])
        return ENDINGS[self.next](self.lease, self.name)

    def after(self, answer: Any) -> "Member":
        """Its position after the answer; None for a refusal."""
        if self.next == "claim" and answer.leases:
            return self._replace(next=self.then[0], then=self.then[1:], lease=answer.leases[0])
        if self.next == "spend" and answer == ["spent"]:
            return self._replace(next=self.then[0], then=self.then[1:])
        if self.next == "claim" and self.left > 1:
            return self._replace(left=self.left - 1)
        return self.dead()

    def dead(self) -> "Member":
        """Its position after its death."""
        return self._replace(next="", left=0, then=(), lease=None)


def enumerate_all(cast: Cast) -> Count:
    """Walk through every order. Raises Violation, with the path that led there."""
    members = (
        Member("producer", "submit", cast), Member("one", "claim", cast, 2, cast.one), Member("two", "claim", cast, 2, cast.two),
        Member("operator", "configure", cast), Member("canceller", "cancel" if cast.cancels else "", cast), Member("time", "time", cast),
    )  # fmt: skip
    return walk(cast.name, members, {"q": Settings(1, "configure", cast.before)}, cast.faults)
