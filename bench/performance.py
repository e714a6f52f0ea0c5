"""docs/performance.md: its tables and its pictures, from the figures that a run of `run.py` wrote down.

    python3 bench/performance.py FILE [--page docs/performance.md] [--pictures docs/pictures]

FILE is what `python3 bench/run.py --json FILE` wrote. The tables go between the marks of the page (`<!-- begin: NAME -->` and
`<!-- end: NAME -->`), the rest of it stays as it is; the figures themselves are put beside it, as performance.json, so that page
and figures can be held against each other. The pictures want matplotlib (`pip install -e '.[bench]'`).
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from contest import drawings
from contest.figures import Run, is_peer, times_better

ROOT = Path(__file__).parent.parent
NAMES = {
    "sublet": "Sublet", "sublet plain": "Sublet, plain functions", "sublet http": "Sublet over HTTP",
    "sublet restarted": "Sublet, restarted on the same host", "bullmq": "BullMQ", "saq": "SAQ", "streaq": "streaQ",
    "rq": "RQ", "dramatiq": "Dramatiq", "huey": "Huey", "huey processes": "Huey, processes", "celery": "Celery",
}  # fmt: skip
NOT_PYTHON = ("bullmq",)
PERSISTENCE = {"off": "persistence off", "aof": "AOF, fsync every second"}
THROUGHPUT = {"drain_1": "drain, one worker", "drain_2": "drain, two workers", "enqueue_one": "enqueue one by one",
              "enqueue_bulk": "enqueue in bulk"}  # fmt: skip
LATENCY = {f"latency_p{share}": f"submit to start, p{share}, ms" for share in (50, 95, 99)}
COST = {
    "redis_us_ordinary": "Redis CPU µs, one by one", "redis_us_bulk": "Redis CPU µs, in bulk", "commands": "commands sent",
    "commands_inside": "commands within scripts",
    "bytes_moved": "bytes moved", "memory_pending": "bytes a pending job", "memory_finished": "bytes a finished job",
}  # fmt: skip
MACHINE = {"cpu": "{}", "cores": "{} cores", "memory_gb": "{} GB", "system": "{}", "python": "Python {}"}
CRASH = {"crash_first": "first again, s", "crash_last": "last again, s", "crash_lost": "lost", "crash_twice": "finished twice"}


@dataclass(frozen=True)
class Goal:
    """What is to be reached: a figure of ours, or how many times better than the best of some peers."""

    words: str
    workload: str
    target: str
    reached: Callable[[float, float | None], bool]
    """Given our figure, and how many times better it is than the peer's (nothing where no peer has one)."""
    ours: str = "sublet"
    among: Callable[[str], bool] = is_peer


def _times(least: float) -> Callable[[float, float | None], bool]:
    return lambda ours, ratio: ratio is not None and ratio >= least


def _at_most(most: float) -> Callable[[float, float | None], bool]:
    return lambda ours, ratio: ours <= most


GOALS = (
    Goal("drain, one worker, jobs/s", "drain_1", "2 × BullMQ", _times(2), among=lambda name: name == "bullmq"),
    Goal("the same, beside Python", "drain_1", "10 × the best", _times(10),
         among=lambda name: is_peer(name) and name not in NOT_PYTHON),
    Goal("drain of plain functions, jobs/s", "drain_1", "3 × Huey", _times(3), "sublet plain", lambda name: name == "huey"),
    Goal("enqueue in bulk, jobs/s", "enqueue_bulk", "60,000", lambda ours, ratio: ours >= 60_000),
    Goal("enqueue one by one, jobs/s", "enqueue_one", "1.1 × the best", _times(1.1)),
    Goal("submit to start, p50, ms", "latency_p50", "1", _at_most(1)),
    Goal("submit to start, p99, ms", "latency_p99", "3", _at_most(3)),
    Goal("Redis CPU a job, submitted in bulk, µs", "redis_us_bulk", "30", _at_most(30)),
    Goal("Redis CPU a job, submitted one by one, µs", "redis_us_ordinary", "60", _at_most(60)),
    Goal("memory of a pending job, a million of them, bytes", "memory_pending_1m", "700", _at_most(700)),
    Goal("worker killed, all run again elsewhere, s", "crash_last", "31 (lease and 1 s)", _at_most(31)),
    Goal("the same, worker restarted on its host, s", "crash_last", "1", _at_most(1), "sublet restarted"),
    Goal("drain rate, 1 M pending against 1 k", "backlog_ratio", "0.97", lambda ours, ratio: ours >= 0.97),
    Goal("longest hold of Redis by one script, ms", "hold", "5", _at_most(5)),
)  # fmt: skip


def goals(run: Run) -> str:
    """Every goal: our figure, the best peer's, and whether it is reached."""
    lines = []
    for goal in GOALS:
        ours, peer = run.value(goal.ours, goal.workload), run.best(goal.workload, goal.among)
        if ours is not None:
            ratio = times_better(goal.workload, ours, peer[1]) if peer else None
            theirs = f"{NAMES.get(peer[0], peer[0])} {number(peer[1])}" if peer else ""
            reached = "yes" if goal.reached(ours, ratio) else "**no**"
            lines.append([goal.words, number(ours), theirs, number(ratio), goal.target, reached])
    return _table(["", "Sublet", "best peer", "× better", "to reach", "reached"], lines)


def behind(run: Run) -> str:
    """Each workload of which a peer has the better figure; with the spread of the rounds beside it."""
    lines = []
    for persistence, words in PERSISTENCE.items():
        for workload, head in (THROUGHPUT | LATENCY | COST | {"crash_last": "worker killed, all run again, s"}).items():
            if workload == "commands_inside":
                continue  # neither good nor bad by itself: what they cost is in the CPU time
            ours, peer = run.value("sublet", workload, persistence), run.best(workload, is_peer, persistence)
            if ours is not None and peer and times_better(workload, ours, peer[1]) < 1:
                ratio = number(times_better(workload, ours, peer[1]))
                lines.append([head, words, number(ours), NAMES.get(peer[0], peer[0]), number(peer[1]), ratio])
    return _table(["", "server", "Sublet", "ahead of us", "at", "× better"], lines) if lines else "Nowhere in this run."


def matrix(run: Run, columns: dict[str, str], persistence: str = "off", noted: str = "") -> str:
    """The contestants, and their figures of some workloads; the best of a column is bold. With the note of one, if asked."""
    names = run.contestants(columns, persistence)
    known = {row["workload"] for row in run.rows if row["persistence"] == persistence}
    columns = {workload: head for workload, head in columns.items() if workload in known}
    best = {workload: run.best(workload, lambda _: True, persistence) for workload in columns}
    lines = []
    for name in names:
        line = [NAMES.get(name, name)]
        followed = run.value(name, "crash_lost") is not None
        for workload in columns:
            value = run.value(name, workload, persistence)
            shown = "never" if value is None and followed and workload in ("crash_first", "crash_last") else number(value)
            top = best[workload]
            line.append(f"**{shown}**" if top and value == top[1] and workload not in ("crash_lost", "crash_twice") else shown)
        lines.append([*line, (run.row(name, noted, persistence) or {"note": ""})["note"]] if noted else line)
    return _table(["", *columns.values(), *([""] if noted else [])], lines)


def backlog(run: Run) -> str:
    """The drain rate with few and with many jobs behind."""
    lines = []
    for name in run.contestants(["backlog_1k"]):
        few, many = run.row(name, "backlog_1k"), run.row(name, "backlog_1m")
        values = [number(max(row["values"])) if row else "" for row in (few, many)]
        memory = number(run.value(name, "memory_pending_1m"))
        ratio = run.value(name, "backlog_ratio")
        lines.append([NAMES.get(name, name), *values, f"{ratio:.2f}" if ratio else "", memory, (many or {}).get("note", "")])
    return _table(["", "few behind", "many behind", "ratio", "bytes a pending job", "many"], lines)


def sweep(run: Run, workload: str, head: str) -> str:
    """A sweep: who did how many jobs/s at which setting."""
    rows = [row for row in run.rows if row["workload"] == workload]
    points, names = sorted({row["at"] for row in rows}), dict.fromkeys(row["contestant"] for row in rows)
    medians = {(row["contestant"], row["at"]): row["median"] for row in rows}
    lines = [[NAMES.get(name, name), *(number(medians.get((name, at))) for at in points)] for name in names]
    return _table([head, *(f"{at:,}" for at in points)], lines)


def settings(run: Run) -> str:
    """Who ran in which version, set up how."""
    lines = []
    for name, versions in run.found.get("versions", {}).items():
        shown = ", ".join(f"{package} {version}" for package, version in versions.items())
        lines.append([NAMES.get(name, name), shown, run.found.get("settings", {}).get(name, "")])
    reasons = {NAMES.get(name, name): " ".join(why.split())[:160] for name, why in run.found.get("left_out", {}).items()}
    out = [f"Left out: {name} ({why})." for name, why in reasons.items()]
    return "\n\n".join([_table(["", "versions", "settings"], lines, left=3), *out])


def where(run: Run) -> str:
    """Where and when these figures were taken, in a line."""
    found, told = run.found, run.found["machine"]
    machine = ", ".join(words.format(told[name]) for name, words in MACHINE.items() if name in told)
    minutes = max(1, round(found["seconds"] / 60))
    times = f"{found['rounds']} round{'s' * (found['rounds'] != 1)}, {minutes} minute{'s' * (minutes != 1)}"
    return f"{found['server'].capitalize()}; {machine}; {found['began'][:10]}; {times}."


PARTS: dict[str, Callable[[Run], str]] = {
    "about": lambda run: " ".join([where(run), *run.found.get("note", "").splitlines()]),
    "goals": goals,
    "behind": behind,
    "throughput": lambda run: matrix(run, THROUGHPUT),
    "throughput with AOF": lambda run: matrix(run, THROUGHPUT, "aof"),
    "latency": lambda run: matrix(run, {workload: words.partition(", ")[2] for workload, words in LATENCY.items()}),
    "cost": lambda run: matrix(run, COST),
    "batch": lambda run: sweep(run, "sweep_batch", "jobs a submit"),
    "slots": lambda run: sweep(run, "sweep_slots", "slots"),
    "backlog": backlog,
    "crash": lambda run: matrix(run, CRASH, noted="crash_first"),
    "settings": settings,
}
"""What may stand between two marks of the page, by the marks' name."""


def rewrite(page: str, run: Run) -> str:
    """The page with the figures of this run between its marks. Raises KeyError for a mark of an unknown name."""
    between = re.compile(r"(<!-- begin: (.+?) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)
    return between.sub(lambda mark: f"{mark[1]}\n{PARTS[mark[2]](run)}\n\n{mark[3]}", page)


def number(value: float | None) -> str:
    """A figure with as many digits as it deserves."""
    if value is None:
        return ""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1) -> str:
    if not lines:
        return "Not measured in this run."
    rule = ["---"] * left + ["--:"] * (len(heads) - left)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def main() -> None:
    """Write the page, its pictures, and the figures beside it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="the figures: what run.py wrote with --json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures")
    asked = parser.parse_args()
    figures = asked.file.read_text()
    run = Run(json.loads(figures))
    asked.page.write_text(rewrite(asked.page.read_text(), run))
    asked.page.with_suffix(".json").write_text(figures)
    for path in drawings.draw(run.rows, NAMES, where(run), asked.pictures):
        print(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
