"""A run of `bench/limits.py`: in each round, every case. Needs the packages of Sublet's environment."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from contest import servers
from contest.arena import Arena, Failed, Program
from contest.figures import number
from contest.record import Progress, Record
from flow.cases import CONTESTANTS, Case
from flow.measure import measure
from flow.page import workload


def run(
    cases: Sequence[Case], rounds: int, kind: str | None, programs: Mapping[str, Program], record: Record
) -> None:
    """Measure the cases on a server of this kind (None: the available one), and record the figures. A case that fails is
    reported, and has no figures of that round.
    """
    progress = Progress(len(cases) * rounds)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        servers.serving(Path(folder), kind or servers.kind_here()) as url,
    ):
        arena = Arena(url, Path(folder), programs)
        record.found["server"] = servers.version_of(url)
        for each in CONTESTANTS:
            if each.name in programs:
                record.introduce(each.name, arena.ask(each, "versions"), arena.say(each, "settings").strip())
        for done in range(rounds):
            for case in cases[:: -1 if done % 2 else 1]:  # each contestant is first in turn
                progress.begin(f"round {done + 1}/{rounds}, {case.part}: {case.row}")
                progress.end(_step(arena, case, record))


def _step(arena: Arena, case: Case, record: Record) -> str:
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
