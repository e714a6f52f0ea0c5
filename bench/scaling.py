"""Simulate a pool's workers under loads of all kinds in virtual time, and compare their cost with the ideal.

The real scripts run on fakeredis. The ideal fleet starts each job at once, or as soon as the pool's `max`
workers can. Figures are medians over the seeds, and in brackets the worst.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from pictures import INK, PAPER

from tests.support.pool_loads import scenarios
from tests.support.simulated_pool import Fleet, Row, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS: dict[str, Callable[[Trace], float]] = {
    "jobs": lambda t: len(t.scenario.jobs),
    "p50 wait s": lambda t: t.wait(0.5) / 1000,
    "p99 wait s": lambda t: t.wait(0.01) / 1000,
    "longest wait s": lambda t: t.wait(0) / 1000,
    "most workers": lambda t: t.most,
    "came": lambda t: len(t.lives),
    "called back": lambda t: t.flaps(),
    "work without worker s": lambda t: t.forsaken() / 1000,
    "worker-seconds": lambda t: t.cost,
    "ideal": lambda t: t.ideal,
    "cost ×": lambda t: t.cost / t.ideal,
}
"""The table's columns. `called back`: a worker left, and within 5 s another one was summoned."""
PICTURES = {
    "loads": ("Workers against what waits", ("burst", "burst, patient", "trickle", "steady", "ramp", "stop")),
    "troubles": (
        "Workers against what waits, when things go wrong",
        ("long", "blocked", "failing invoker", "too few", "killed", "slow starts"),
    ),
}
WORKERS, WAITING = "#0072B2", "#E69F00"
POINTS = 160


def table(found: dict[str, list[Trace]]) -> str:
    lines = ["| load | " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * len(COLUMNS)]
    for name, traces in found.items():
        cells = [_cell([figure(trace) for trace in traces]) for figure in COLUMNS.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{name}: {traces[0].scenario.title}" for name, traces in found.items())])


def _figures(trace: Trace) -> dict[str, float]:
    return {word: figure(trace) for word, figure in COLUMNS.items()}


def _cell(values: Sequence[float]) -> str:
    median, worst = (_short(value) for value in (statistics.median(values), max(values)))
    return median if median == worst else f"{median} ({worst})"


def _short(value: float) -> str:
    return (
        f"{value:,.0f}"
        if value >= 100 or value == int(value)
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
    )


def draw(found: dict[str, list[Trace]], folder: Path) -> list[Path]:
    """Draw an SVG for each group of loads if all of them were simulated. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {
        "svg.fonttype": "none", "svg.hashsalt": "scaling", "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 8,
        "axes.spines.top": False, "axes.titlesize": 8.5, "axes.titlelocation": "left", "text.color": INK, "axes.labelcolor": INK,
        "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": "#8C959F", "figure.facecolor": PAPER, "axes.facecolor": PAPER,
        "savefig.facecolor": PAPER, "path.simplify": True,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _picture(title, {name: found[name][0] for name in names}, folder / f"scaling-{picture}.svg")
        for picture, (title, names) in PICTURES.items()
        if all(name in found for name in names)
    ]


def _picture(title: str, traces: dict[str, Trace], path: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 2, figsize=(9, 7.6))
    figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.012, 0.938, "jobs that wait (orange, right)", fontsize=8, color="#57606A")
    figure.text(
        0.2, 0.938, "workers (blue, left), and how many the sum wants (grey)", fontsize=8, color="#57606A"
    )
    for panel, (name, trace) in zip(axes.flat, traces.items(), strict=True):
        _panel(panel, name, trace)
    figure.subplots_adjust(left=0.055, right=0.945, top=0.885, bottom=0.05, hspace=0.5, wspace=0.22)
    figure.savefig(path, metadata={"Date": None, "Creator": "bench/scaling.py"})
    pyplot.close(figure)
    return path


def _panel(axes: "Axes", name: str, trace: Trace) -> None:
    from matplotlib.ticker import MaxNLocator

    waiting = axes.twinx()
    waiting.fill_between(
        *_steps(trace, lambda row: row.ready), color=WAITING, alpha=0.45, linewidth=0, step="post"
    )
    axes.step(*_steps(trace, lambda row: row.wanted), where="post", color="#8C959F", linewidth=0.8)
    axes.step(*_steps(trace, lambda row: row.living), where="post", color=WORKERS, linewidth=1.4)
    axes.set_zorder(waiting.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.set_ylim(0, max(max(row.wanted for row in trace.rows), trace.most) * 1.15)
    waiting.set_ylim(0, max(5, max(row.ready for row in trace.rows)) * 1.15)
    axes.set_xlim(_first(trace), _last(trace))
    for axis in (axes.xaxis, axes.yaxis, waiting.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_title(f"{name}: {trace.cost / trace.ideal:.1f} × the ideal\n{trace.scenario.title}")


def _steps(trace: Trace, figure: Callable[[Row], int]) -> tuple[list[float], list[int]]:
    seen = [row for row in trace.rows if _first(trace) <= row.at / 1000 <= _last(trace)]
    n = -(-len(seen) // POINTS)
    rows = [max(seen[i : i + n], key=figure) for i in range(0, len(seen), n)]
    changes = [
        next(same)
        for _, same in groupby(((row.at / 1000, figure(row)) for row in rows), key=lambda point: point[1])
    ]
    changes.append((_last(trace), figure(rows[-1])))
    return [at for at, _ in changes], [value for _, value in changes]


def _first(trace: Trace) -> float:
    return max(0, min(job.at for job in trace.scenario.jobs) / 1000 - 5)


def _last(trace: Trace) -> float:
    return max(row.at for row in trace.rows if row.living) / 1000 + 5


def main() -> None:
    names = list(scenarios(1))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="try each load so often, each time another one"
    )
    parser.add_argument("--only", nargs="+", choices=names, metavar="LOAD", help=f"of {'; '.join(names)}")
    parser.add_argument(
        "--pictures", type=Path, metavar="DIR", help="draw the pictures there (SVG; needs matplotlib)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    if asked.seeds < 1:
        parser.error("--seeds: use a number from 1")
    found: dict[str, list[Trace]] = {}
    for name in asked.only or names:
        print(f"{name} …", file=sys.stderr, flush=True)
        found[name] = [Fleet(scenarios(seed)[name], seed).run() for seed in range(1, asked.seeds + 1)]
    print(table(found))
    if asked.json:
        asked.json.write_text(
            json.dumps(
                {name: [_figures(trace) for trace in traces] for name, traces in found.items()}, indent=1
            )
        )
    if asked.pictures:
        for path in draw(found, asked.pictures):
            print(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
