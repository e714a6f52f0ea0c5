"""Measure flow control beside BullMQ: limits, rates, tokens, fair turns, and what a group costs.

Needs Python 3.11 with pip, a redis-server on the PATH (else it uses Valkey from a wheel), and node with npm for BullMQ
(without them Sublet is measured alone). Figures are medians of the rounds; in each round the contestants take turns. The
whole takes about ten minutes: run nothing else meanwhile. `--write` writes the tables of docs/measurements/flow-control.md.
"""

import argparse
import datetime
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import run
from contest import environments, pages
from flow.cases import CONTESTANTS, PARTS, all_cases
from flow.page import TABLES

PAGE = run.ROOT / "docs" / "measurements" / "flow-control.md"
QUICK = 0.1


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print or write the tables. Returns 1 without figures, 2 for a wrong argument or page, 130 when
    interrupted.
    """
    asked = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, run.interrupt)
    try:
        if not asked.figures:
            folder = asked.environments.resolve()
            left_out = run.prepare(folder, [each for each in CONTESTANTS if each.name in asked.only])
            if "sublet" in left_out:
                environments.say("limits.py: without its own environment the bench cannot run.")
                return 1
            with environments.holding(folder):
                _measure(asked, folder, left_out)
        return _show(asked)
    except KeyboardInterrupt:
        return 130
    except (pages.Unusable, OSError) as error:
        environments.say(f"limits.py: {error}")
        return 2


def _parser() -> argparse.ArgumentParser:
    about, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=more)
    parser.add_argument("--rounds", type=run.count, default=3, help="how often (3)")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, metavar="NAME", help=", ".join(PARTS)
    )
    names = [each.name for each in CONTESTANTS]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs: to see that it runs")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=Path("limits.json"),
        help="where the figures go (limits.json)",
    )
    parser.add_argument(
        "--from", dest="figures", type=Path, metavar="FILE", help="figures to show; nothing is measured"
    )
    parser.add_argument("--write", action="store_true", help="write the page, and the figures beside it")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
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


def _measure(asked: argparse.Namespace, folder: Path, left_out: dict[str, str]) -> None:
    from contest.arena import Program  # these need the packages of the environment
    from contest.record import Record
    from flow import rounds

    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    about = {"machine": run.machine(), "server": "", "began": began, "rounds": asked.rounds}
    record, programs = Record(about, asked.json), {}
    for each in (each for each in CONTESTANTS if each.name in asked.only):
        if each.environment in left_out:
            record.leave_out(each.name, left_out[each.environment])
        else:
            ours = folder / each.environment
            programs[each.name] = Program(environments.command_of(ours, run.PEERS / each.program), ours)
    cases = [
        case
        for case in all_cases(QUICK if asked.quick else 1.0)
        if case.part in asked.parts and case.contestant in programs
    ]
    try:
        rounds.run(cases, asked.rounds, asked.server, programs, record)
    finally:
        record.save()


def _show(asked: argparse.Namespace) -> int:
    """Print the tables, or write the page."""
    found = pages.read(asked.figures or asked.json, "limits.py")
    if asked.write:
        written = pages.rewrite(asked.page.read_text(), TABLES, found)
        asked.page.write_text(written)
        asked.page.with_suffix(".json").write_text((asked.figures or asked.json).read_text())
    else:
        print("\n\n".join(f"{name}\n\n{table(found)}" for name, table in TABLES.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
