"""The table of a run, at most a hundred columns wide."""

from collections.abc import Sequence
from typing import Any

from contest.figures import Run, times_better

Row = dict[str, Any]
HIDDEN = ("latency", "sweep_batch", "sweep_slots")
BLOCKS = (
    (
        "enqueue_one",
        "enqueue_bulk",
        "drain_1",
        "drain_2",
        "latency_p50",
        "latency_p95",
        "latency_p99",
        "backlog_1k",
        "backlog_1m",
    ),
    (
        "redis_us_ordinary",
        "redis_us_bulk",
        "commands",
        "commands_inside",
        "bytes_moved",
        "memory_pending",
        "memory_finished",
    ),
    ("crash_first", "crash_last", "crash_lost", "crash_twice", "hold", "memory_pending_1m"),
)
BESIDE = "sublet beside"
PERSISTENCE = {"off": "persistence off", "aof": "changes to a file, synced every second (AOF everysec)"}


def table(found: dict[str, Any], *, settings: bool = False) -> str:
    run = Run(found)
    blocks = [_block(run, columns, persistence) for persistence in PERSISTENCE for columns in BLOCKS]
    parts = [_head(found), *blocks, _sweeps(run), _notes(found), _settings(found) if settings else ""]
    return "\n\n".join(part for part in parts if part)


def _head(found: dict[str, Any]) -> str:
    machine = found["machine"]
    rounds = f"{found['rounds']} round{'s' * (found['rounds'] != 1)}"
    where = f"{found['server']} on {machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    load = f"; load before {machine['load']}" if "load" in machine else ""
    return f"{where}\n{rounds}, medians; {found['began']}{load}"


def _block(run: Run, columns: Sequence[str], persistence: str) -> str:
    rows = [row for row in run.rows if row["persistence"] == persistence and row["workload"] in columns]
    if not rows:
        return ""
    units = {row["workload"]: row["unit"] for row in sorted(rows, key=lambda row: bool(row["unit"]))}
    here = [workload for workload in columns if workload in units]
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    heads = [workload.rpartition("_") if workload.count("_") else ("", "", workload) for workload in here]
    beside = [_beside(run, workload, persistence) for workload in here]
    lines = [
        ["", *(above for above, _, _ in heads)],
        ["", *(below for _, _, below in heads)],
        ["", *(units[workload] for workload in here)],
        *([name, *(number(run.value(name, workload, persistence)) for workload in here)] for name in names),
    ]
    if any(times for times, _ in beside):
        lines += [
            [BESIDE, *(times for times, _ in beside)],
            ["  the best peer", *(peer for _, peer in beside)],
        ]
    widths = [max(len(cell) for cell in cells) for cells in zip(*lines, strict=True)]
    return "\n".join([PERSISTENCE[persistence], *(_line(cells, widths) for cells in lines)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    (name, *figures), (first, *others) = cells, widths
    return "  ".join(
        [name.ljust(first), *(cell.rjust(width) for cell, width in zip(figures, others, strict=True))]
    ).rstrip()


def _beside(run: Run, workload: str, persistence: str) -> tuple[str, str]:
    ours, best = run.value("sublet", workload, persistence), run.best_peer(workload, persistence)
    if ours is None or best is None or not best[1]:
        return "", ""
    return f"{times_better(workload, ours, best[1]):.2f} ×" if ours else "none", best[0].split()[0]


def number(value: float | None) -> str:
    """Format a figure: whole from a hundred on, else three digits; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _sweeps(run: Run) -> str:
    lines = []
    for workload, words in (("sweep_batch", "jobs a submit"), ("sweep_slots", "slots")):
        rows = [row for row in run.rows if row["workload"] == workload]
        for name in dict.fromkeys(row["contestant"] for row in rows):
            points = [f"{row['at']}: {number(row['median'])}" for row in rows if row["contestant"] == name]
            lines.append(f"jobs/s by {words}, {name}: {', '.join(points)}")
    return "\n".join(lines)


def _notes(found: dict[str, Any]) -> str:
    lines = [f"LEFT OUT {name}: {why}" for name, why in found["left_out"].items()]
    about: dict[tuple[str, str, str], list[str]] = {}
    for row in found["results"]:
        if row["note"] and row["workload"] not in HIDDEN:
            about.setdefault((row["contestant"], row["persistence"], row["note"]), []).append(row["workload"])
    for (name, persistence, note), workloads in about.items():
        lines.append(f"{name}, {', '.join(workloads)}{', AOF' * (persistence == 'aof')}: {note}")
    return "\n".join(lines)


def _settings(found: dict[str, Any]) -> str:
    lines = []
    for name, settings in found["settings"].items():
        versions = ", ".join(
            f"{package} {version}" for package, version in found["versions"].get(name, {}).items()
        )
        lines.append(f"{name}: {versions}\n    {settings}")
    return "\n".join(lines)
