"""A run of a bench with a page. Needs the packages of Sublet's environment."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contest import servers
from contest.arena import Arena, Failed, Program
from contest.contestants import Contestant
from contest.figures import number
from contest.pages import workload
from contest.record import Progress, Record
from contest.workloads import Figure


@dataclass(frozen=True)
class Plan:
    """The cases, each with `part`, `row` and `contestant`."""

    contestants: Sequence[Contestant]
    cases: Sequence[Any]
    rounds: int
    kind: str | None
    """Of the server; None: the available one."""
    measure: Callable[[Arena, Any], Sequence[Figure]]


def run(plan: Plan, programs: Mapping[str, Program], record: Record) -> None:
    """Measure and record the cases of each round. One that fails is reported."""
    progress = Progress(len(plan.cases) * plan.rounds)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        servers.serving(Path(folder), plan.kind or servers.kind_here()) as url,
    ):
        arena = Arena(url, Path(folder), programs)
        record.found["server"] = servers.version_of(url)
        for each in plan.contestants:
            if each.name in programs:
                record.introduce(each.name, arena.ask(each, "versions"), arena.say(each, "settings").strip())
        for done in range(plan.rounds):
            for case in plan.cases[:: -1 if done % 2 else 1]:  # each contestant is first in turn
                progress.begin(f"round {done + 1}/{plan.rounds}, {case.part}: {case.row}")
                progress.end(step(arena, case, plan.measure, record))


def step(arena: Arena, case: Any, measure: Callable[[Arena, Any], Sequence[Figure]], record: Record) -> str:
    """Measure a case. Return its figures as text, or why it failed."""
    try:
        found = measure(arena, case)
    except Failed as failed:
        record.leave_out(f"{case.part}, {case.row}", str(failed))
        return f"FAILED: {failed}"
    named = [replace(figure, workload=workload(case.part, figure.workload)) for figure in found]
    record.add(case.row, "off", named)
    shown = [
        f"{figure.workload} {number(figure.value)} {figure.unit}".strip()
        for figure in found
        if not figure.samples
    ]
    return ", ".join(shown) or f"{sum(len(figure.samples) for figure in found)} samples"
