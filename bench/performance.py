"""Write the tables and pictures of docs/measurements/performance.md from a run of `bench/run.py --json FILE`.

The tables go between the page's marks, `<!-- begin: NAME -->` and `<!-- end: NAME -->`. Needs matplotlib
(`pip install -e '.[bench]'`).
"""

import argparse
import importlib.util
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from contest import drawings
from contest.figures import Run, number, times_better
from contest.goals import GOALS, Goal
from contest.names import AGAIN, GUIDES, NAMES

ROOT = Path(__file__).parent.parent
PERSISTENCE = {"off": "persistence off", "aof": "AOF, fsync every second"}
THROUGHPUT = {"drain_1": "drain, one worker", "drain_2": "drain, two workers", "enqueue_one": "enqueue one by one",
              "enqueue_bulk": "enqueue in bulk"}  # fmt: skip
LATENCY = {f"latency_p{share}": f"submit to start, p{share}, ms" for share in (50, 95, 99)}
COST = {
    "redis_us_ordinary": "Redis CPU µs, one by one", "redis_us_bulk": "Redis CPU µs, in bulk", "commands": "commands sent",
    "commands_inside": "commands within scripts",
    "bytes_moved": "bytes moved", "memory_pending": "bytes a pending job", "memory_finished": "bytes a finished job",
}  # fmt: skip
NEUTRAL = ("commands_inside",)
"""Workloads that are not judged: the cost of these commands is in the CPU time."""
ABOUT = ("machine", "server", "began", "seconds", "rounds")
MACHINE = {"cpu": "{}", "cores": "{} cores", "memory_gb": "{} GB", "system": "{}", "python": "Python {}"}
CRASH = {"crash_first": "first again, s", "crash_last": "last again, s", "crash_lost": "not finished in 75 s",
         "crash_twice": "finished twice"}  # fmt: skip
SAME = (("sublet", "sublet plain"), ("huey", "huey processes"))
"""Pairs of contestants that submit with the same code: their difference is noise."""
BUSY = 0.5
"""Load of the machine before the run, above which the run's figures are less reliable."""
NEVER = "not in 75 s"
NOTHING = "Not measured in this run."


class Unusable(Exception):
    """Raised if the page cannot be written; the message has the reason."""


def goals(run: Run) -> str:
    """Return a table of our targets: our figure, the best peer's, and whether the target is met."""
    lines = []
    for goal in GOALS:
        ours, peer = run.value(goal.ours, goal.workload), run.best(goal.workload, partial(_counts, goal))
        if ours is not None:
            ratio = times_better(goal.workload, ours, peer[1]) if peer else None
            theirs = f"{_name(peer[0])} {figure(run, peer[0], goal.workload)}" if peer else ""
            reached = "yes" if goal.reached(ours, ratio) else "**no**"
            lines.append(
                [
                    goal.words,
                    figure(run, goal.ours, goal.workload),
                    theirs,
                    number(ratio),
                    goal.target,
                    reached,
                ]
            )
    return _table(["", "Sublet", "best peer", "× better", "to reach", "reached"], lines)


def _counts(goal: Goal, name: str) -> bool:
    return goal.among(name, goal.workload)


def behind(run: Run) -> str:
    """Return a table of the workloads in which a peer is better than Sublet, with the rounds of both."""
    lines, compared = [], False
    for persistence, words in PERSISTENCE.items():
        for workload, head in (
            THROUGHPUT | LATENCY | COST | {"crash_last": "worker killed, all run again, s"}
        ).items():
            ours, peer = run.value("sublet", workload, persistence), run.best_peer(workload, persistence)
            if workload in NEUTRAL or ours is None or not peer:
                continue
            compared, ratio = True, times_better(workload, ours, peer[1])
            if ratio < 1:
                both = [figure(run, name, workload, persistence) for name in ("sublet", peer[0])]
                lines.append([head, words, both[0], _name(peer[0]), both[1], number(ratio)])
    nothing = "Nowhere in this run." if compared else NOTHING
    return _table(["", "server", "Sublet", "ahead of us", "at", "× better"], lines) if lines else nothing


def noise(run: Run) -> str:
    """Return a table of the contestants with the same code, and a sentence on the spread of the rounds."""
    rounds, lines = [], []
    for row in run.rows:
        least, most = run.spread(row["contestant"], row["workload"], row["persistence"]) or (0, 0)
        if row["workload"] in THROUGHPUT and least:
            rounds.append(most / least)
    for persistence, words in PERSISTENCE.items():
        for workload in ("enqueue_one", "enqueue_bulk"):
            for pair in SAME:
                values = [run.value(name, workload, persistence) or 0 for name in pair]
                if all(values):
                    shown = [f"{_name(name)} {figure(run, name, workload, persistence)}" for name in pair]
                    lines.append([THROUGHPUT[workload], words, *shown, f"{max(values) / min(values):.2f} ×"])
    parts = [_table(["", "server", "", "", "apart"], lines, left=4)]
    if len(rounds) > 1:
        tenths = statistics.quantiles(rounds, n=10, method="inclusive")
        often, seldom = f"{tenths[4]:.2f} ×", f"{tenths[8]:.2f} ×"
        parts.append(
            f"The best round of a rate was at most {often} its worst one in half of all cases, above {seldom} in a tenth."
        )
    return "\n\n".join(parts)


def matrix(run: Run, columns: dict[str, str], persistence: str = "off") -> str:
    """Return a table: the contestants' figures in the workloads `columns` (name → heading); the best of a
    column is bold.
    """
    known = {row["workload"] for row in run.rows if row["persistence"] == persistence}
    columns = {workload: head for workload, head in columns.items() if workload in known}
    best = {
        workload: run.best(workload, lambda _: True, persistence)
        for workload in columns
        if workload not in NEUTRAL
    }
    lines = []
    for name in run.contestants(columns, persistence) if columns else []:
        line = [_name(name)]
        for workload in columns:
            value, top = run.value(name, workload, persistence), best.get(workload)
            line.append(f"**{number(value)}**" if top and value == top[1] else number(value))
        lines.append(line)
    return _table(["", *columns.values()], lines)


def crash(run: Run) -> str:
    """Return a table: when each contestant ran interrupted jobs again, and the limit by its defaults."""
    lines = []
    for name in run.contestants(CRASH):
        followed = run.value(name, "crash_lost") is not None
        values = [run.value(name, workload) for workload in CRASH]
        shown = [NEVER if value is None and followed else number(value) for value in values]
        lines.append(
            [_name(name), *shown, (run.row(name, "crash_first") or {"note": ""})["note"], AGAIN.get(name, "")]
        )
    return _table(["", *CRASH.values(), "", "runs them again by its defaults"], lines, words=2)


def backlog(run: Run) -> str:
    """Return a table of the drain rates with few and with many waiting jobs."""
    lines = []
    for name in run.contestants(["backlog_1k"]):
        few, many = run.row(name, "backlog_1k"), run.row(name, "backlog_1m")
        values = [number(max(row["values"])) if row else "" for row in (few, many)]
        memory = number(run.value(name, "memory_pending_1m"))
        ratio = run.value(name, "backlog_ratio")
        lines.append(
            [_name(name), *values, f"{ratio:.2f}" if ratio else "", memory, (many or {}).get("note", "")]
        )
    return _table(["", "few behind", "many behind", "ratio", "bytes a pending job", "many"], lines)


def sweep(run: Run, workload: str, head: str) -> str:
    """Return a table of a workload that was run with several settings: jobs/s by contestant and setting."""
    rows = [row for row in run.rows if row["workload"] == workload]
    points, names = sorted({row["at"] for row in rows}), dict.fromkeys(row["contestant"] for row in rows)
    medians = {(row["contestant"], row["at"]): row["median"] for row in rows}
    lines = [[_name(name), *(number(medians.get((name, at))) for at in points)] for name in names]
    return _table([head, *(f"{at:,}" for at in points)], lines)


def settings(run: Run) -> str:
    """Return a table of each contestant's version and setup."""
    lines = []
    for name, versions in run.found.get("versions", {}).items():
        shown = ", ".join(f"{package} {version}" for package, version in versions.items())
        linked = f"[{_name(name)}]({GUIDES[name]})" if name in GUIDES else _name(name)
        lines.append([linked, shown, run.found.get("settings", {}).get(name, "")])
    reasons = {
        _name(name): " ".join(why.split())[:160] for name, why in run.found.get("left_out", {}).items()
    }
    out = [f"Left out: {name} ({why})." for name, why in reasons.items()]
    return "\n\n".join([_table(["", "versions", "settings"], lines, left=3), *out])


def where(run: Run) -> str:
    """Return a line: where and when the figures were measured."""
    found, told = run.found, run.found["machine"]
    machine = ", ".join(words.format(told[name]) for name, words in MACHINE.items() if name in told)
    minutes = max(1, round(found["seconds"] / 60))
    times = f"{found['rounds']} round{'s' * (found['rounds'] != 1)}, {minutes} minute{'s' * (minutes != 1)}"
    return f"{found['server'].capitalize()}; {machine}; {found['began'][:10]}; {times}."


def about(run: Run) -> str:
    """Return the line of `where`, and how busy the machine was before the run."""
    load = run.found["machine"].get("load")
    parts = [where(run), f"Load before: {load:.2f}." if load is not None else ""]
    if load is not None and load > BUSY:
        parts.append(
            "**The machine was busy when this began:** the figures are lower than they could be, and not for all alike."
        )
    return " ".join(filter(None, [*parts, *run.found.get("note", "").splitlines()]))


PARTS: dict[str, Callable[[Run], str]] = {
    "about": about,
    "goals": goals,
    "behind": behind,
    "noise": noise,
    "throughput": lambda run: matrix(run, THROUGHPUT),
    "throughput with AOF": lambda run: matrix(run, THROUGHPUT, "aof"),
    "latency": lambda run: matrix(
        run, {workload: words.partition(", ")[2] for workload, words in LATENCY.items()}
    ),
    "cost": lambda run: matrix(run, COST),
    "batch": lambda run: sweep(run, "sweep_batch", "jobs a submit"),
    "slots": lambda run: sweep(run, "sweep_slots", "slots"),
    "backlog": backlog,
    "crash": crash,
    "settings": settings,
}


def rewrite(page: str, run: Run) -> str:
    """Return the page with this run's figures between its marks. Raises Unusable for an unknown mark."""
    between = re.compile(r"(<!-- begin: (.+?) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)
    if unknown := {mark[2] for mark in between.finditer(page)} - set(PARTS):
        raise Unusable(
            f"the page has marks of unknown parts: {', '.join(sorted(unknown))}; the known ones are {', '.join(PARTS)}"
        )
    return between.sub(lambda mark: f"{mark[1]}\n{PARTS[mark[2]](run)}\n\n{mark[3]}", page)


def figure(run: Run, name: str, workload: str, persistence: str = "off") -> str:
    """Return a contestant's figure, and in brackets the lowest and the highest round."""
    shown, spread = number(run.value(name, workload, persistence)), run.spread(name, workload, persistence)
    return f"{shown} ({number(spread[0])}–{number(spread[1])})" if spread else shown


def _name(name: str) -> str:
    return NAMES.get(name, name)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1, words: int = 0) -> str:
    if not lines:
        return NOTHING
    rule = ["---"] * left + ["--:"] * (len(heads) - left - words) + ["---"] * words
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def read(path: Path) -> Run:
    """Read a run of run.py. Raises Unusable for another file or one without figures; and OSError."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise Unusable(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or not {*ABOUT, "results"} <= set(found):
        raise Unusable(f"{path} is not a file that bench/run.py --json wrote: give such a file")
    if not found["results"]:
        raise Unusable(f"{path} has no figures: run bench/run.py --json again, until a contestant has run")
    return Run(found)


def write(figures: Path, page: Path, pictures: Path) -> list[Path]:
    """Draw the pictures, then write the page and the figures. Raises Unusable before it writes, and OSError."""
    if importlib.util.find_spec("matplotlib") is None:
        raise Unusable("the pictures need matplotlib: pip install -e '.[bench]'")
    run = read(figures)
    written = rewrite(page.read_text(), run)
    drawn = drawings.draw(run.rows, NAMES, where(run), pictures)
    page.write_text(written)
    page.with_suffix(".json").write_bytes(figures.read_bytes())
    return drawn


def main() -> None:
    """Write the page, the figures and the pictures. Exits with 2 and a message if that is not possible."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="the figures: what run.py wrote with --json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "measurements" / "performance.md")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "measurements" / "pictures")
    asked = parser.parse_args()
    try:
        drawn = write(asked.file, asked.page, asked.pictures)
    except (Unusable, OSError, UnicodeDecodeError) as error:
        print(f"performance.py: {error}", file=sys.stderr)
        sys.exit(2)
    for path in drawn:
        print(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
