"""The tables of docs/measurements/flow-control.md."""

import statistics
from collections.abc import Callable
from functools import partial

from contest.figures import Run, number
from contest.pages import about, named, quantiles, settings, table, values, workload

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


def part_table(run: Run, part: str) -> str:
    """Return the table of a part: a line for each row, in the order of the cases."""
    prefix = workload(part, "")
    rows = dict.fromkeys(row["contestant"] for row in run.rows if row["workload"].startswith(prefix))
    cells = partial(_late, run) if part == "token" else partial(_medians, run, part)
    return table(["", *COLUMNS[part].values()], [[named(row), *cells(row)] for row in rows])


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
    return quantiles(values(run, "token", row, "late_ms"))


TABLES: dict[str, Callable[[Run], str]] = {
    "about": about,
    **{part: partial(part_table, part=part) for part in COLUMNS},
    "settings": settings,
}
