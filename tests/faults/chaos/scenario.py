"""What a scenario is: a function that makes trouble on a harness, what it promises, and the bounds it is held to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.faults.chaos.harness import Harness
from tests.faults.chaos.script_time import ScriptTime
from tests.faults.chaos.verdict import Verdict, percentile

SCRIPT_LIMIT = 0.005
"""Seconds for which one of our scripts may hold the server."""
PROMISES = ("lost", "twice", "stale")
"""What is promised where the server keeps its data: of these there are none."""

ALWAYS = {
    "lost_after": "lost although submitted after the last fault",
    "unfinished": "not completed in time",
    "unanswered": "never answered",
    "rejected_but_stored": "stored although rejected",
}
"""What is promised whatever the server loses, and what to say where it was not kept."""
RAN_FOR = "ran for"

Attack = Callable[[Harness], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to attack. `recovery` is the bound in seconds on work going on again; 0 where there is none to speak of."""

    name: str
    words: str
    run: Attack
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
    script_time: ScriptTime | None
    """The longest that a script of ours held a server; None where that was not measured."""
    seconds: float
    failures: tuple[str, ...]
    skipped: str = ""
    notes: dict[str, Any] = {}  # noqa: RUF012  # never written to

    @property
    def slow(self) -> bool:
        """Is all that is wrong with it that a script held the server for too long?"""
        return bool(self.failures) and all(RAN_FOR in fault for fault in self.failures)

    @property
    def ok(self) -> bool:
        """Did every promise hold?"""
        return not self.failures


def failures_of(scenario: Scenario, verdict: Verdict, script_time: ScriptTime | None) -> tuple[str, ...]:
    """Which promises and bounds did not script_time, in words. A script_time that was not measured is None."""
    found = []
    for name in ("acked", *scenario.shows):
        if not getattr(verdict, name):
            found.append(f"{name}: none: the scenario shows nothing")
    for name, words in (
        ("lost", "lost"),
        ("twice", "accepted twice"),
        ("stale", "accepted from a lost lease"),
    ):
        if name in scenario.promises and getattr(verdict, name):
            found.append(f"{getattr(verdict, name)} {words}")
    for name, words in ALWAYS.items():
        if getattr(verdict, name):
            found.append(f"{getattr(verdict, name)} {words}")
    worst = percentile(verdict.recovery, 0.99)
    if scenario.recovery and not verdict.recovery:
        found.append("no recovery after a fault")
    if scenario.recovery and worst > scenario.recovery:
        found.append(f"recovery {worst:.1f} s, bound {scenario.recovery:g} s")
    if script_time and script_time.seconds > SCRIPT_LIMIT:
        found.append(
            f"{script_time.script} {RAN_FOR} {script_time.seconds * 1000:.2f} ms, bound {SCRIPT_LIMIT * 1000:g} ms"
        )
    return tuple(found)


_ALL: dict[str, Scenario] = {}


def scenario(
    name: str, *, recovery: float, quick: float, whole: float, **more: Any
) -> Callable[[Attack], Attack]:
    """Put a function on the list; its docstring's first line is what people read."""

    def put(run: Attack) -> Attack:
        words = (run.__doc__ or "").strip().splitlines()[0]
        _ALL[name] = Scenario(name, words, run, recovery, (quick, whole), **more)
        return run

    return put


def scenarios() -> dict[str, Scenario]:
    """All of them, by name."""
    from tests.faults.chaos.scenarios import (  # noqa: F401  each registers its own
        everything,
        failover,
        handlers,
        nodes,
        servers,
        transport,
        workers,
    )

    return dict(_ALL)
