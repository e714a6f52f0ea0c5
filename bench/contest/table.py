"""The table of a run: a line for each workload, a column for each contestant, and ours beside the best peer."""

from collections.abc import Sequence
from typing import Any

from contest.figures import Run, is_peer, times_better

Row = dict[str, Any]
HIDDEN = ("latency", "sweep_batch", "sweep_slots")
"""Workloads that are no line: samples, and what is a curve."""
PERSISTENCE = {"off": "persistence off", "aof": "changes to a file, synced every second (AOF everysec)"}


def table(found: dict[str, Any]) -> str:
    """The whole: machine, figures, versions and settings, and what went wrong."""
    run = Run(found)
    names = list(dict.fromkeys(row["contestant"] for row in run.rows))
    parts = [_head(found), *(_block(run, names, persistence) for persistence in PERSISTENCE)]
    return "\n\n".join(part for part in [*parts, _sweeps(run), _notes(found), _settings(found)] if part)


def _head(found: dict[str, Any]) -> str:
    machine = found["machine"]
    rounds = f"{found['rounds']} round{'s' * (found['rounds'] != 1)}"
    where = f"{found['server']} on {machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    return f"{where}; {rounds}, medians; {found['began']}"


def _block(run: Run, names: Sequence[str], persistence: str) -> str:
    """The lines of one persistence; nothing if there are none."""
    rows = [row for row in run.rows if row["persistence"] == persistence and row["workload"] not in HIDDEN]
    if not rows:
        return ""
    units = {row["workload"]: row["unit"] for row in rows}
    heads = [name.replace("sublet ", "+") for name in names]
    lines = [PERSISTENCE[persistence]]
    lines.append("".join([" " * 30, *(head.rjust(max(9, len(head) + 1)) for head in heads), "  sublet beside the best peer"]))
    for workload, unit in units.items():
        values = [run.value(name, workload, persistence) for name in names]
        cells = [_number(value).rjust(max(9, len(head) + 1)) for head, value in zip(heads, values, strict=True)]
        lines.append("".join([f"{workload:20}{unit:10}", *cells, _ratio(run, workload, persistence)]))
    return "\n".join(lines)


def _ratio(run: Run, workload: str, persistence: str) -> str:
    """How many times better ours is than the best of the peers."""
    ours, best = run.value("sublet", workload, persistence), run.best(workload, is_peer, persistence)
    if ours is None or best is None or not best[1]:
        return ""
    if not ours:
        return f"  none, {best[0]} {_number(best[1])}"
    return f"  {times_better(workload, ours, best[1]):.2f} × {best[0]}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _sweeps(run: Run) -> str:
    """The curves, as figures."""
    lines = []
    for workload, words in (("sweep_batch", "jobs a submit"), ("sweep_slots", "slots")):
        rows = [row for row in run.rows if row["workload"] == workload]
        for name in dict.fromkeys(row["contestant"] for row in rows):
            points = [f"{row['at']}: {_number(row['median'])}" for row in rows if row["contestant"] == name]
            lines.append(f"jobs/s by {words}, {name}: {', '.join(points)}")
    return "\n".join(lines)


def _notes(found: dict[str, Any]) -> str:
    """What went wrong, or needs a word."""
    lines = [f"LEFT OUT {name}: {why}" for name, why in found["left_out"].items()]
    about: dict[tuple[str, str, str], list[str]] = {}
    for row in found["results"]:
        if row["note"] and row["workload"] not in HIDDEN:
            about.setdefault((row["contestant"], row["persistence"], row["note"]), []).append(row["workload"])
    for (name, persistence, note), workloads in about.items():
        lines.append(f"{name}, {', '.join(workloads)}{', AOF' * (persistence == 'aof')}: {note}")
    return "\n".join(lines)


def _settings(found: dict[str, Any]) -> str:
    """Which versions of what, and how each is set up."""
    lines = []
    for name, settings in found["settings"].items():
        versions = ", ".join(f"{package} {version}" for package, version in found["versions"].get(name, {}).items())
        lines.append(f"{name}: {versions}\n    {settings}")
    return "\n".join(lines)
