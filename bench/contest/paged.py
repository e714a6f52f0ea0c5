"""The command line of a bench that writes a page of docs/measurements."""

import argparse
import datetime
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import run
from contest import environments, pages
from contest.contestants import Contestant
from contest.figures import Run

QUICK = 0.1


@dataclass(frozen=True)
class Bench:
    """A bench and its page."""

    name: str
    about: str
    contestants: Sequence[Contestant]
    parts: Sequence[str]
    cases: Callable[[float], Sequence[Any]]
    """Takes a scale: below 1, the cases are smaller."""
    measure: Callable[[], Callable[..., Any]]
    """Imports the function that measures a case, and its packages."""
    tables: Mapping[str, Callable[[Run], str]]

    @property
    def page(self) -> Path:
        return run.ROOT / "docs" / "measurements" / f"{self.name}.md"


def main(bench: Bench, program: str, words: Sequence[str] | None = None) -> int:
    """Measure; print or write the tables. Returns 1 without figures, 2 for wrong arguments, 130 when interrupted."""
    asked = _parser(bench, program).parse_args(words)
    signal.signal(signal.SIGTERM, run.interrupt)
    try:
        if not asked.figures:
            folder = asked.environments.resolve()
            left_out = run.prepare(folder, [each for each in bench.contestants if each.word in asked.only])
            if "sublet" in left_out:
                environments.say(f"{program}.py: without its own environment the bench cannot run.")
                return 1
            with environments.holding(folder):
                _measure(bench, asked, folder, left_out)
        return _show(bench, program, asked)
    except KeyboardInterrupt:
        return 130
    except (pages.Unusable, OSError) as error:
        environments.say(f"{program}.py: {error}")
        return 2


def _parser(bench: Bench, program: str) -> argparse.ArgumentParser:
    about, _, more = bench.about.partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=more)
    parser.add_argument("--rounds", type=run.count, default=3, help="how often (3)")
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=bench.parts,
        default=bench.parts,
        metavar="NAME",
        help=", ".join(bench.parts),
    )
    names = [each.word for each in bench.contestants]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs: to see that it runs")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=Path(f"{program}.json"),
        help=f"where the figures go ({program}.json)",
    )
    parser.add_argument(
        "--from", dest="figures", type=Path, metavar="FILE", help="figures to show; nothing is measured"
    )
    parser.add_argument("--write", action="store_true", help="write the page, and the figures beside it")
    parser.add_argument("--page", type=Path, default=bench.page, help=argparse.SUPPRESS)
    parser.add_argument(
        "--server", choices=("redis", "valkey"), help="what to start (redis-server, if on the PATH)"
    )
    parser.add_argument(
        "--environments",
        type=Path,
        metavar="FOLDER",
        default=run.ROOT / ".bench",
        help="where they are kept (.bench)",
    )
    return parser


def _measure(bench: Bench, asked: argparse.Namespace, folder: Path, left_out: dict[str, str]) -> None:
    from contest import paged_rounds  # these need the packages of the environment
    from contest.arena import Program
    from contest.record import Record

    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about = {"machine": run.machine(), "server": "", "began": began, "rounds": asked.rounds}
    record, programs = Record(about, asked.json), {}
    for each in (each for each in bench.contestants if each.word in asked.only):
        if each.environment in left_out:
            record.leave_out(each.name, left_out[each.environment])
        else:
            ours = folder / each.environment
            programs[each.name] = Program(environments.command_of(ours, run.PEERS / each.program), ours)
    cases = [
        case
        for case in bench.cases(QUICK if asked.quick else 1.0)
        if case.part in asked.parts and case.contestant in programs
    ]
    plan = paged_rounds.Plan(bench.contestants, cases, asked.rounds, asked.server, bench.measure())
    try:
        paged_rounds.run(plan, programs, record)
    finally:
        record.save()


def _show(bench: Bench, program: str, asked: argparse.Namespace) -> int:
    found = pages.read(asked.figures or asked.json, f"{program}.py")
    if asked.write:
        written = pages.rewrite(asked.page.read_text(), bench.tables, found)
        asked.page.write_text(written)
        asked.page.with_suffix(".json").write_text((asked.figures or asked.json).read_text())
    else:
        print("\n\n".join(f"{name}\n\n{table(found)}" for name, table in bench.tables.items()))
    return 0
