"""The tables of docs/measurements/workflows.md."""

import statistics
from collections.abc import Callable
from functools import partial

from contest.figures import Run, number
from contest.pages import about, named, quantiles, settings, table, values, workload

DRAIN = {
    "jobs_per_s": "jobs/s",
    "submit_per_s": "submitted, jobs/s",
    "redis_us": "Redis CPU a job, µs",
    "hold_ms": "longest hold of Redis, any round, ms",
}
GAP = {"p50": "p50, ms", "p99": "p99, ms", "most": "longest, ms", "samples": "samples"}
COLUMNS = {
    "fan": DRAIN,
    "chain": DRAIN,
    "fan_paced": GAP,
    "chain_paced": GAP,
    "wide": {**DRAIN, "gap_ms": "last end → callback, ms", "read_ms": "it reads all results, ms"},
}
WORST = "hold_ms"
"""The figure whose highest round counts, not the median."""


def part_table(run: Run, part: str) -> str:
    prefix = workload(part, "")
    rows = dict.fromkeys(row["contestant"] for row in run.rows if row["workload"].startswith(prefix))
    cells = partial(_gaps if COLUMNS[part] is GAP else _medians, run, part)
    return table(["", *COLUMNS[part].values()], [[named(row), *cells(row)] for row in rows])


def _gaps(run: Run, part: str, row: str) -> list[str]:
    return quantiles(values(run, part, row, "gap_ms"))


def _medians(run: Run, part: str, row: str) -> list[str]:
    shown = []
    for figure in COLUMNS[part]:
        rounds = values(run, part, row, figure)
        value = (max if figure == WORST else statistics.median)(rounds) if rounds else None
        spread = len(rounds) > 1 and figure != WORST
        low_high = f" ({number(min(rounds))}–{number(max(rounds))})" if spread else ""
        shown.append(number(value) + low_high)
    return shown


TABLES: dict[str, Callable[[Run], str]] = {
    "about": about,
    **{part: partial(part_table, part=part) for part in COLUMNS},
    "settings": settings,
}
