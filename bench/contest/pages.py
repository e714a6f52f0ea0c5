"""What the pages of runs share: marks, tables, and the figures' source."""

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from contest.figures import Run, number
from contest.names import NAMES

ABOUT = ("machine", "server", "began", "seconds", "rounds")
MACHINE = {"cpu": "{}", "cores": "{} cores", "memory_gb": "{} GB", "system": "{}", "python": "Python {}"}
BUSY = 1.0
"""Load of the machine before the run, above which figures are unreliable."""
NOTHING = "Not measured in this run."


class Unusable(Exception):
    """Raised if the page cannot be written; the message has the reason."""


def read(path: Path, program: str = "run.py") -> Run:
    """Read a run of a bench. Raises Unusable for another file or one without figures; and OSError."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise Unusable(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict) or not {*ABOUT, "results"} <= set(found):
        raise Unusable(f"{path} is not a file that bench/{program} --json wrote: give such a file")
    if not found["results"]:
        raise Unusable(f"{path} has no figures: run bench/{program} --json again, until a contestant has run")
    return Run(found)


def rewrite(page: str, parts: Mapping[str, Callable[[Run], str]], run: Run) -> str:
    """Return the page with this run's figures between its marks. Raises Unusable for an unknown mark."""
    between = re.compile(r"(<!-- begin: (.+?) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)
    if unknown := {mark[2] for mark in between.finditer(page)} - set(parts):
        raise Unusable(
            f"the page has marks of unknown parts: {', '.join(sorted(unknown))}; the known ones are {', '.join(parts)}"
        )
    return between.sub(lambda mark: f"{mark[1]}\n{parts[mark[2]](run)}\n\n{mark[3]}", page)


def where(run: Run) -> str:
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


def figure(run: Run, name: str, workload: str, persistence: str = "off") -> str:
    """Return a contestant's figure, and in brackets the lowest and the highest round."""
    shown, spread = number(run.value(name, workload, persistence)), run.spread(name, workload, persistence)
    return f"{shown} ({number(spread[0])}–{number(spread[1])})" if spread else shown


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1, words: int = 0) -> str:
    """Return a Markdown table. The first `left` columns and the last `words` hold text."""
    if not lines:
        return NOTHING
    rule = ["---"] * left + ["--:"] * (len(heads) - left - words) + ["---"] * words
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def workload(part: str, figure: str) -> str:
    return f"{part} {figure}"


def values(run: Run, part: str, row: str, figure: str) -> list[float]:
    found = run.row(row, workload(part, figure))
    return [value for value in found["values"] if value is not None] if found else []


def quantiles(samples: Sequence[float]) -> list[str]:
    """Return cells: median, 99th percentile, longest, and the number of samples."""
    if len(samples) < 2:
        return ["", "", "", str(len(samples))]
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return [*(f"{ms:.1f}" for ms in (cuts[49], cuts[98], max(samples))), str(len(samples))]


def named(row: str) -> str:
    name, comma, rest = row.partition(", ")
    return f"{NAMES.get(name, name)}{comma}{rest}"


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
