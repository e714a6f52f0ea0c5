"""What a scenario is: a function that makes trouble on a stage, what it promises, and the bounds it is held to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.faults.chaos.holds import Hold
from tests.faults.chaos.judge import Verdict, percentile
from tests.faults.chaos.stage import Stage

HOLD = 0.005
"""Seconds for which one of our scripts may hold the server."""
PROMISES = ("lost", "twice", "stale")
"""What is promised where the server keeps its data: of these there are none."""

ALWAYS = {
    "lost_after": "lost that were sent when all was well again",
    "unfinished": "not completed in time",
    "unanswered": "never answered",
    "denied": "refused, though they are there",
}
"""What is promised whatever the server loses, and what to say where it was not kept."""
HELD = "held the server for"

Make = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to attack. `recovery` is the bound in seconds on work going on again; 0 where there is none to speak of."""

    name: str
    words: str
    make: Make
    recovery: float
    seconds: tuple[float, float]
    """How long the trouble lasts: quick, whole."""
    promises: tuple[str, ...] = PROMISES
    """Which of the promises the failure model lets stand; what it lets be lost, the report shows."""
    shows: tuple[str, ...] = ()
    """What must have been seen at least once in the verdict, for without it the scenario proves nothing."""
    own_server: bool = True
    """Does it take a server of the suite's own? If not, it may be run against anybody's."""
    server: dict[str, Any] = field(default_factory=dict)
    """The settings of that server."""
    clock: bool = False
    """Is the clock of that server to be set?"""
    loses: str = ""
    """In words, what the failure model lets be lost."""
    repeats: str = ""
    """In words, what it lets be accepted more than once where it lets nothing be lost."""
    valkey: tuple[int, ...] = ()
    """The Valkey that it takes at least; empty where any server will do."""


class Finding(NamedTuple):
    """One scenario's end: its verdict, and what is wrong with it; or why it was not run, or broke."""

    scenario: Scenario
    verdict: Verdict | None
    hold: Hold | None
    """The longest that a script of ours held a server; None where that was not measured."""
    seconds: float
    faults: tuple[str, ...]
    skipped: str = ""
    notes: dict[str, Any] = {}  # noqa: RUF012  # never written to

    @property
    def slow(self) -> bool:
        """Is all that is wrong with it that a script held the server for too long?"""
        return bool(self.faults) and all(HELD in fault for fault in self.faults)

    @property
    def ok(self) -> bool:
        """Did every promise hold?"""
        return not self.faults


def faults_of(scenario: Scenario, verdict: Verdict, hold: Hold | None) -> tuple[str, ...]:
    """Which promises and bounds did not hold, in words. A hold that was not measured is None."""
    found = []
    for name in ("acked", *scenario.shows):
        if not getattr(verdict, name):
            found.append(f"{name}: none, so it proves nothing")
    for name, words in (("lost", "lost"), ("twice", "accepted twice"), ("stale", "accepted from a ghost")):
        if name in scenario.promises and getattr(verdict, name):
            found.append(f"{getattr(verdict, name)} {words}")
    for name, words in ALWAYS.items():
        if getattr(verdict, name):
            found.append(f"{getattr(verdict, name)} {words}")
    worst = percentile(verdict.recovery, 0.99)
    if scenario.recovery and not verdict.recovery:
        found.append("nothing was seen to go on after a trouble")
    if scenario.recovery and worst > scenario.recovery:
        found.append(f"recovery {worst:.1f} s, bound {scenario.recovery:g} s")
    if hold and hold.seconds > HOLD:
        found.append(f"{hold.script} {HELD} {hold.seconds * 1000:.2f} ms, bound {HOLD * 1000:g} ms")
    return tuple(found)


_ALL: dict[str, Scenario] = {}


def scenario(
    name: str, *, recovery: float, quick: float, whole: float, **more: Any
) -> Callable[[Make], Make]:
    """Put a function on the list; its docstring's first line is what people read."""

    def put(make: Make) -> Make:
        words = (make.__doc__ or "").strip().splitlines()[0]
        _ALL[name] = Scenario(name, words, make, recovery, (quick, whole), **more)
        return make

    return put


def scenarios() -> dict[str, Scenario]:
    """All of them, by name."""
    from tests.faults.chaos import (  # noqa: F401  # each puts its own on the list
        on_everything,
        on_failover,
        on_handlers,
        on_nodes,
        on_servers,
        on_wires,
        on_workers,
    )

    return dict(_ALL)
