"""The run itself: pilots, then per round, persistence and phase every contestant in turn."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contest import backlog, crashes, servers, sweeps
from contest.arena import Arena, Failed, Program
from contest.contestants import Contestant
from contest.record import Progress, Record, Row
from contest.table import number
from contest.workloads import COSTS, ONLY_ONCE, PHASES, WORKLOADS, Figure, Rates, Turn, pilot

EXTRAS = ("backlog", "crash", "sweeps")
WORDS = ("latency", "memory_pending", "memory_finished", "commands", "commands_inside", "bytes_moved")
"""Figures that are in the table only, not in a step's line."""


@dataclass(frozen=True)
class Plan:
    """The selected phases and their size."""

    contestants: Sequence[Contestant]
    workloads: Sequence[str]
    rounds: int = 3
    persistences: Sequence[str] = ("off", "aof")
    seconds: float = 1.2
    samples: int = 300
    server: str = "redis"
    crash_cap: float = crashes.CAP

    @property
    def phases(self) -> list[str]:
        return [phase for phase in PHASES if phase in self.workloads]

    @property
    def steps(self) -> int:
        per_round = sum(len(self.phases_with(persistence)) for persistence in self.persistences)
        extras = (
            len(self.contestants) * ("backlog" in self.workloads)
            + ("crash" in self.workloads)
            + ("sweeps" in self.workloads)
        )
        return len(self.contestants) * (1 + self.rounds * per_round) + extras

    def phases_with(self, persistence: str) -> list[str]:
        return [
            phase for phase in self.phases if persistence == self.persistences[0] or phase not in ONLY_ONCE
        ]


def run(plan: Plan, programs: Mapping[str, Program], record: Record, progress: Progress) -> None:
    """Run all phases, and record the figures. A contestant that fails is reported and left out."""
    with _arena(plan, "off", programs) as arena:
        record.found["server"] = servers.version_of(arena.url)
        rates = {name: rate for name, rate in _pilots(plan, arena, record, progress)}
    here = [contestant for contestant in plan.contestants if contestant.name in rates]
    for done in range(plan.rounds):
        turns = (
            here[done % max(1, len(here)) :] + here[: done % max(1, len(here))]
        )  # each contestant is first in turn
        for persistence in plan.persistences:
            with _arena(plan, persistence, programs) as arena:
                for phase in plan.phases_with(persistence):
                    for contestant in turns:
                        progress.begin(
                            f"round {done + 1}/{plan.rounds}, persistence {persistence}, {phase}, {contestant.name}"
                        )
                        turn = Turn(arena, contestant, rates[contestant.name], plan.seconds, plan.samples)
                        figures = _figures(phase, turn)
                        turn.rates.learn(figures)
                        record.add(contestant.name, persistence, _told(figures, persistence))
                        progress.end(_words(figures))
    _extras(plan, here, programs, record, progress)


def _pilots(plan: Plan, arena: Arena, record: Record, progress: Progress) -> Iterator[tuple[str, Rates]]:
    for contestant in plan.contestants:
        progress.begin(f"pilot, {contestant.name}")
        try:
            record.introduce(
                contestant.name, arena.ask(contestant, "versions"), arena.say(contestant, "settings").strip()
            )
            rates = pilot(arena, contestant)
        except Failed as failed:
            record.leave_out(contestant.name, str(failed))
            progress.end(f"LEFT OUT: {failed}")
        else:
            progress.end(f"{rates.one:,.0f} and {rates.bulk:,.0f} submits/s, {rates.drain:,.0f} jobs/s")
            yield contestant.name, rates


def _figures(phase: str, turn: Turn) -> list[Figure]:
    found: list[Figure] = []
    try:
        found.extend(PHASES[phase](turn))
    except Failed as failed:
        known = {figure.workload for figure in found}
        found.extend(
            Figure(name, "", None, f"FAILED: {failed}") for name in WORKLOADS[phase] if name not in known
        )
    return found


def _told(figures: Sequence[Figure], persistence: str) -> list[Figure]:
    return [figure for figure in figures if persistence == "off" or figure.workload not in COSTS]


def _words(figures: Sequence[Figure]) -> str:
    parts = [
        f"{number(one.value)} {one.unit}" if one.value is not None else "no figure"
        for one in figures
        if one.workload not in WORDS
    ]
    notes = dict.fromkeys(figure.note for figure in figures if figure.note)
    return "; ".join([", ".join(parts), *notes])


def _extras(
    plan: Plan,
    contestants: Sequence[Contestant],
    programs: Mapping[str, Program],
    record: Record,
    progress: Progress,
) -> None:
    here = {
        name: program for name, program in programs.items() if name in {each.name for each in contestants}
    }

    def step(what: str, rows: Callable[[Arena], Sequence[Row]]) -> None:
        progress.begin(what)
        try:
            with _arena(plan, "off", here) as arena:
                found = rows(arena)
        except Failed as failed:
            record.found["left_out"][what] = str(failed)
            progress.end(f"FAILED: {failed}")
        else:
            record.add_rows(list(found))
            progress.end(
                ", ".join(f"{row['workload']} {_short(row)}" for row in found)
                if len(found) < 6
                else f"{len(found)} rows"
            )

    if "backlog" in plan.workloads:
        for contestant in contestants:
            step(f"backlog, {contestant.name}", partial(backlog.run, contestant=contestant))
    if "crash" in plan.workloads:
        step("crash, all at once", lambda arena: crashes.run(arena, contestants, cap=plan.crash_cap))
    if "sweeps" in plan.workloads:
        step("sweeps", sweeps.run)


def _short(row: Row) -> str:
    return number(row["median"]) + (f" {row['unit']}" if row["median"] is not None else "")


@contextmanager
def _arena(plan: Plan, persistence: str, programs: Mapping[str, Program]) -> Iterator[Arena]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        servers.serving(Path(folder), plan.server, persistent=persistence == "aof") as url,
    ):
        yield Arena(url, Path(folder), programs)
