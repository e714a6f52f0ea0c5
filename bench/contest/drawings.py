"""The pictures of docs/performance.md, drawn by `performance.py`: throughput, sweeps, latency, memory."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pictures import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Names = dict[str, str]

OURS, THEIRS, SECOND = "#0072B2", "#B6BEC7", "#E69F00"
"""Colours that a colour-blind eye tells apart (Okabe and Ito), and a grey."""
LINES = ((OURS, "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", ":"), ("#CC79A7", "D", "-."), ("#000000", "v", (0, (1, 1))))
FASTEST = 4
"""Contestants whose latency is drawn in full: more lines could not be told apart."""
POINTS = 100
"""Points of a line of the latency's distribution."""


def draw(rows: Sequence[Row], names: Names, legend: str, folder: Path) -> list[Path]:
    """Draw each picture that there are figures for, as SVG; the same figures give the same bytes. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {
        "svg.fonttype": "none", "svg.hashsalt": "performance", "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 9,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9.5, "axes.titlelocation": "left",
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": "#8C959F",
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "legend.frameon": False,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in rows if row["persistence"] == "off"]
    pictures: dict[str, tuple[str, tuple[str, ...], Callable[..., None]]] = {
        "throughput": ("Throughput, jobs a second", ("drain_1", "enqueue_one", "enqueue_bulk"), _throughput),
        "sweeps": ("Throughput against the size of a submit, and against slots", ("sweep_batch", "sweep_slots"), _sweeps),
        "latency": ("From the submit to the first line of the task, on an idle queue", ("latency",), _latency),
        "memory": ("What a job of 200 bytes takes in Redis, bytes", ("memory_pending", "memory_finished"), _memory),
    }
    drawn = []
    for name, (title, workloads, paint) in pictures.items():
        by_workload = {one: [row for row in rows if row["workload"] == one and row["values"]] for one in workloads}
        if all(by_workload.values()):
            drawn.append(_picture(folder / f"performance-{name}.svg", title, legend, by_workload, names, paint))
    return drawn


def _picture(path: Path, title: str, legend: str, rows: dict[str, list[Row]], names: Names, paint: Callable[..., None]) -> Path:
    from matplotlib import pyplot

    bars = max((len(some) for some in rows.values()), default=0)
    figure = pyplot.figure(figsize=(9, 3.9 if paint is _sweeps else 1.1 + (0.25 if paint is _latency else 0.2) * max(8, bars)))
    height = figure.get_size_inches()[1]
    figure.suptitle(title, x=0.012, y=1 - 0.12 / height, ha="left", va="top", fontsize=12, fontweight="bold")
    figure.text(0.012, 1 - 0.46 / height, legend, fontsize=8, color="#57606A", va="top")
    paint(figure, rows, names)
    bottom = 0.5 if paint in (_sweeps, _latency) else 0.08
    figure.subplots_adjust(right=0.985, top=1 - 0.95 / height, bottom=bottom / height)
    figure.savefig(path, metadata={"Date": None, "Creator": "bench/performance.py"})
    pyplot.close(figure)
    return path


def _throughput(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    """Bars beside each other, a panel for each kind of work; in all of them the contestants have the same places."""
    order = _order(rows["drain_1"], [row for some in rows.values() for row in some], most=True)
    titles = ("drained by one worker", "submitted one by one", "submitted in bulk")
    for axes, (workload, some), title in zip(_columns(figure, 3, 0.2), rows.items(), titles, strict=True):
        _bars(axes, order, {row["contestant"]: row["median"] for row in some}, names, workload == "drain_1")
        axes.set_title(title)


def _memory(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    order = _order(rows["memory_pending"], [row for some in rows.values() for row in some], most=False)
    titles = ("that waits", "that is finished, as long as it is kept")
    for axes, (workload, some), title in zip(_columns(figure, 2, 0.2), rows.items(), titles, strict=True):
        _bars(axes, order, {row["contestant"]: row["median"] for row in some}, names, workload == "memory_pending")
        axes.set_title(title)


def _sweeps(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    words = (("jobs in a submit", "submitted a second"), ("slots of the worker", "drained a second"))
    for axes, some, (below, title) in zip(_columns(figure, 2, 0.07), rows.values(), words, strict=True):
        for name, (colour, marker, style) in zip(dict.fromkeys(row["contestant"] for row in some), LINES, strict=False):
            points = sorted((row["at"], row["median"]) for row in some if row["contestant"] == name and row["median"])
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle=style, markersize=4.5)
            axes.lines[-1].set_label(names.get(name, name))
            place = 6 if axes.lines[1:] == [] else -13
            for x, y in points:
                axes.annotate(_short(y), (x, y), (0, place), textcoords="offset points", ha="center", fontsize=8)
        ticks = sorted({row["at"] for row in some})
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_xlabel(below)
        highest = max(row["median"] for row in some)
        axes.set_ylim(-0.1 * highest, 1.15 * highest)
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        axes.grid(axis="y", color="#D0D7DE", linewidth=0.6)
        axes.legend(loc="upper left")
        axes.set_title(title)


def _latency(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    """The distribution of the fastest; and of all the middle, and where 90 % and 99 % of the samples lie."""
    samples = {row["contestant"]: sorted(row["values"]) for row in rows["latency"]}
    order = sorted(samples, key=lambda name: statistics.median(samples[name]))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.065, wspace=0.45)
    others = iter(LINES[1:])
    for name in order[:FASTEST]:
        colour, _, style = LINES[0] if name == "sublet" else next(others)
        points = [(_quantile(samples[name], i / POINTS), 100 * i / POINTS) for i in range(POINTS + 1)]
        left.plot(*zip(*points, strict=True), color=colour, linestyle=style, linewidth=1.5, label=names.get(name, name))
    left.set_ylabel("% of the jobs have started")
    left.set_title(f"the {len(order[:FASTEST])} fastest")
    left.legend(loc="lower right")
    for place, name in enumerate(order):
        colour = OURS if name.startswith("sublet") else "#6E7781"
        values = [_quantile(samples[name], q) for q in (0.01, 0.05, 0.5, 0.95, 0.99)]
        right.plot((values[0], values[4]), (place, place), color=colour, linewidth=1)
        right.plot((values[1], values[3]), (place, place), color=colour, linewidth=4.5, solid_capstyle="butt")
        right.plot(values[2], place, "o", color=PAPER, markeredgecolor=colour, markersize=5.5)
        right.annotate(f"{values[2]:.3g}", (values[4], place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    right.set_yticks(range(len(order)), [names.get(name, name) for name in order])
    right.set_ylim(len(order) - 0.4, -0.8)
    right.tick_params(axis="y", length=0)
    for axes in (left, right):
        axes.set_xscale("log")
    right.set_title("all: median, middle 90 % (thick), 98 % (thin)")
    for axes, room in ((left, 3), (right, 2)):
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * room)  # where the legend stands, and the numbers
        _milliseconds(axes)


def _milliseconds(axes: "Axes") -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" and _narrow(axes) else "")
    axes.set_xlabel("ms")
    axes.grid(axis="x", color="#D0D7DE", linewidth=0.6)
    axes.set_axisbelow(True)


def _narrow(axes: "Axes") -> bool:
    low, high = axes.get_xlim()
    return math.log10(high / low) < 2


def _quantile(values: Sequence[float], q: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(q * len(values)))]


def _columns(figure: "Figure", number: int, left: float) -> list["Axes"]:
    figure.subplots_adjust(left=left, wspace=0.17)
    return list(figure.subplots(1, number))


def _order(first: Sequence[Row], all_rows: Sequence[Row], *, most: bool) -> list[str]:
    """Who stands where, from the top: by the first panel, and then who is not in it."""
    placed = sorted((row for row in first if row["median"] is not None), key=lambda row: row["median"], reverse=most)
    return list(dict.fromkeys(row["contestant"] for row in [*placed, *all_rows]))


def _bars(axes: "Axes", order: Sequence[str], medians: dict[str, float | None], names: Names, named: bool) -> None:
    values = [medians.get(name) or 0.0 for name in order]
    axes.barh(range(len(order)), values, color=[OURS if name.startswith("sublet") else THEIRS for name in order], height=0.72)
    for place, value in enumerate(values):
        if value:
            axes.annotate(f"{value:,.0f}", (value, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(order)), [names.get(name, name) for name in order] if named else [""] * len(order))
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0, max(values) * 1.27)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _short(value: float) -> str:
    return f"{value / 1e3:.3g}k" if value >= 1000 else f"{value:.3g}"
