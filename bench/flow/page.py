"""The tables of docs/measurements/flow-control.md."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from contest.figures import Run, number
from contest.names import NAMES
from contest.pages import about, table

COLUMNS = {
    "concurrency": {
        "jobs_per_s": "jobs/s",
        "share": "% of 2,000",
        "lasted_ms": "a job took, ms",
        "in_use": "% of the places in use",
        "most": "most at once, any round",
        "redis_us": "Redis CPU a job, µs",
    },
    "rate": {
        "jobs_per_s": "jobs/s",
        "worst_1000": "most starts in any second",
        "worst_100": "in any 100 ms",
        "redis_us": "Redis CPU a job, µs",
    },
    "waiting": {
        "sent": "commands a second",
        "inside": "and within scripts",
        "redis_ms": "Redis CPU, ms a second",
    },
    "token": {"p50": "p50, ms", "p99": "p99, ms", "most": "longest, ms", "samples": "samples"},
    "fairness": {
        "jain": "Jain's index",
        "heavy": "% of the starts for the tenant with 90 %",
        "window": "jobs in the window",
    },
    "groups": {"jobs_per_s": "jobs/s", "submit_us": "Redis CPU a submit, µs", "redis_us": "to drain it, µs"},
}
WORST = ("most", "worst_1000", "worst_100")
"""Figures whose highest round counts, not the median."""


def workload(part: str, figure: str) -> str:
    """Return the name of a figure in the file."""
    return f"{part} {figure}"


def values(run: Run, part: str, row: str, figure: str) -> list[float]:
    """Return a figure's rounds; for `token` all samples."""
    found = run.row(row, workload(part, figure))
    return [value for value in found["values"] if value is not None] if found else []


def part_table(run: Run, part: str) -> str:
    """Return the table of a part: a line for each row, in the order of the cases."""
    prefix = workload(part, "")
    rows = dict.fromkeys(row["contestant"] for row in run.rows if row["workload"].startswith(prefix))
    cells = partial(_late, run) if part == "token" else partial(_medians, run, part)
    return table(["", *COLUMNS[part].values()], [[_named(row), *cells(row)] for row in rows])


def _medians(run: Run, part: str, row: str) -> list[str]:
    shown = []
    for figure in COLUMNS[part]:
        rounds = values(run, part, row, figure)
        value = (max if figure in WORST else statistics.median)(rounds) if rounds else None
        digits = f"{value:.3f}" if figure == "jain" and value is not None else number(value)
        spread = len(rounds) > 1 and figure in ("jobs_per_s", "redis_us")
        shown.append(f"{digits} ({number(min(rounds))}–{number(max(rounds))})" if spread else digits)
    return shown


def _late(run: Run, row: str) -> list[str]:
    samples = values(run, "token", row, "late_ms")
    if len(samples) < 2:
        return ["", "", "", str(len(samples))]
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return [*(f"{ms:.1f}" for ms in (cuts[49], cuts[98], max(samples))), str(len(samples))]


def _named(row: str) -> str:
    name, _, rest = row.partition(", ")
    return f"{NAMES.get(name, name)}, {rest}"


def settings(run: Run) -> str:
    """Return a table of each contestant's versions and setup, and the contestants that are missing."""
    lines: list[Sequence[str]] = []
    for name, versions in run.found["versions"].items():
        shown = ", ".join(f"{package} {version}" for package, version in versions.items())
        lines.append([NAMES.get(name, name), shown, run.found["settings"].get(name, "")])
    out = [
        f"Left out: {name} ({' '.join(why.split())[:160]})." for name, why in run.found["left_out"].items()
    ]
    return "\n\n".join([table(["", "versions", "settings"], lines, left=3), *out])


TABLES: dict[str, Callable[[Run], str]] = {
    "about": about,
    **{part: partial(part_table, part=part) for part in COLUMNS},
    "settings": settings,
}
