"""The definition of a scenario: its faults, promises and bounds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.faults.chaos.harness import Harness
from tests.faults.chaos.script_time import ScriptTime
from tests.faults.chaos.verdict import Verdict, percentile

SCRIPT_LIMIT = 0.005
"""The maximum run time of a Sublet script in seconds."""
PROMISES = ("lost", "twice", "stale")
"""Counters that must be zero if the server keeps its data."""

ALWAYS = {
    "lost_after": "lost although submitted after the last fault",
    "unfinished": "not completed in time",
    "unanswered": "never answered",
    "rejected_but_stored": "stored although rejected",
}
"""Counters that must always be zero, with the text of a failure."""
RAN_FOR = "ran for"
UNUSED = "that the limits allow were used"
LOADED = (RAN_FOR, UNUSED)
"""Words of failures that other processes on the machine may have caused."""

Attack = Callable[[Harness], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of fault. `recovery` is the bound in seconds; 0 for none."""

    name: str
    fault: str
    run: Attack
    recovery: float
    seconds: tuple[float, float]
    """Its duration: quick, whole."""
    promises: tuple[str, ...] = PROMISES
    """The promises under its failure model. The report shows the other counters in brackets."""
    shows: tuple[str, ...] = ()
    """Counters that must not be zero: otherwise the scenario shows nothing."""
    own_server: bool = True
    """Whether it needs the suite's own server."""
    server: dict[str, Any] = field(default_factory=dict)
    """The settings of that server."""
    clock: bool = False
    """Whether it changes that server's clock."""
    loses: str = ""
    """The loss that the failure model allows."""
    repeats: str = ""
    """The repetition that it allows without a loss."""
    valkey: tuple[int, ...] = ()
    """The minimum version of Valkey; empty for any server."""


class Finding(NamedTuple):
    """The result of one scenario; `skipped` is the reason if it did not run."""

    scenario: Scenario
    verdict: Verdict | None
    script_time: ScriptTime | None
    """The longest script; None if not measured."""
    seconds: float
    failures: tuple[str, ...]
    skipped: str = ""
    notes: dict[str, Any] = {}  # noqa: RUF012  never changed

    @property
    def slow(self) -> bool:
        """Whether its only failures are those of a busy machine."""
        return bool(self.failures) and all(any(word in fault for word in LOADED) for fault in self.failures)

    @property
    def ok(self) -> bool:
        """Whether all promises were kept."""
        return not self.failures


def failures_of(scenario: Scenario, verdict: Verdict, script_time: ScriptTime | None) -> tuple[str, ...]:
    """Describe the broken promises and bounds."""
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
    """Register a function. The first paragraph of its docstring is its description."""

    def put(run: Attack) -> Attack:
        fault = " ".join((run.__doc__ or "").strip().partition("\n\n")[0].split())
        _ALL[name] = Scenario(name, fault, run, recovery, (quick, whole), **more)
        return run

    return put


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name."""
    from tests.faults.chaos.scenarios import (  # noqa: F401  each registers its own
        everything,
        failover,
        handlers,
        limits,
        nodes,
        servers,
        transport,
        workers,
        workflows,
    )

    return dict(_ALL)
