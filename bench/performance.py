"""Write the tables and pictures of docs/measurements/performance.md from a run of `bench/run.py --json FILE`.

The tables go between the page's marks, `<!-- begin: NAME -->` and `<!-- end: NAME -->`. Needs matplotlib
(`pip install -e '.[bench]'`).
"""

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from contest import drawings, pages
from contest.figures import Run, number, times_better
from contest.goals import GOALS, Goal
from contest.names import AGAIN, GUIDES, NAMES
from contest.pages import NOTHING, Unusable, about, figure, read, table, where

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
CRASH = {"crash_first": "first again, s", "crash_last": "last again, s", "crash_lost": "not finished in 75 s",
         "crash_twice": "finished twice"}  # fmt: skip
SAME = (("sublet", "sublet plain"), ("huey", "huey processes"))
"""Pairs of contestants that submit with the same code: their difference is noise."""
NEVER = "not in 75 s"


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
    return table(["", "Sublet", "best peer", "× better", "to reach", "reached"], lines)


def _counts(goal: Goal, name: str) -> bool:
    return goal.among(name, goal.workload)


def behind(run: Run) -> str:
    """Return a table of the workloads in which a peer is better than Sublet."""
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
    return table(["", "server", "Sublet", "ahead of us", "at", "× better"], lines) if lines else nothing


def noise(run: Run) -> str:
    """Return a table of the contestants with the same code, with the rounds' spread."""
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
    parts = [table(["", "server", "", "", "apart"], lines, left=4)]
    if len(rounds) > 1:
        tenths = statistics.quantiles(rounds, n=10, method="inclusive")
        often, seldom = f"{tenths[4]:.2f} ×", f"{tenths[8]:.2f} ×"
        parts.append(
            f"The best round of a rate was at most {often} its worst one in half of all cases, above {seldom} in a tenth."
        )
    return "\n\n".join(parts)


def matrix(run: Run, columns: dict[str, str], persistence: str = "off") -> str:
    """Return a table of the contestants' figures in `columns` (name → heading); each column's best is bold."""
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
    return table(["", *columns.values()], lines)


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
    return table(["", *CRASH.values(), "", "runs them again by its defaults"], lines, words=2)


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
    return table(["", "few behind", "many behind", "ratio", "bytes a pending job", "many"], lines)


def sweep(run: Run, workload: str, head: str) -> str:
    """Return a table of a workload that was run with several settings: jobs/s by contestant and setting."""
    rows = [row for row in run.rows if row["workload"] == workload]
    points, names = sorted({row["at"] for row in rows}), dict.fromkeys(row["contestant"] for row in rows)
    medians = {(row["contestant"], row["at"]): row["median"] for row in rows}
    lines = [[_name(name), *(number(medians.get((name, at))) for at in points)] for name in names]
    return table([head, *(f"{at:,}" for at in points)], lines)


def settings(run: Run) -> str:
    lines = []
    for name, versions in run.found.get("versions", {}).items():
        shown = ", ".join(f"{package} {version}" for package, version in versions.items())
        linked = f"[{_name(name)}]({GUIDES[name]})" if name in GUIDES else _name(name)
        lines.append([linked, shown, run.found.get("settings", {}).get(name, "")])
    reasons = {
        _name(name): " ".join(why.split())[:160] for name, why in run.found.get("left_out", {}).items()
    }
    out = [f"Left out: {name} ({why})." for name, why in reasons.items()]
    return "\n\n".join([table(["", "versions", "settings"], lines, left=3), *out])


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
    return pages.rewrite(page, PARTS, run)


def _name(name: str) -> str:
    return NAMES.get(name, name)


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
    """Write the page, the figures and the pictures. Exits with 2 if that is not possible."""
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
