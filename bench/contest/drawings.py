"""The pictures of docs/measurements/performance.md, drawn by `performance.py`."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contest.figures import number
from pictures import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Names = dict[str, str]

OURS, THEIRS, SECOND = "#0072B2", "#B6BEC7", "#E69F00"
"""Colours that a colour-blind eye tells apart (Okabe and Ito), and a grey."""
LINES = (
    (OURS, "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", ":"),
    ("#CC79A7", "D", "-."),
    ("#000000", "v", (0, (1, 1))),
)
FASTEST = 4
"""Contestants whose latency is drawn in full: more lines would be hard to distinguish."""
LATENCY = ("latency", "latency_p50", "latency_p95", "latency_p99")


def draw(rows: Sequence[Row], names: Names, legend: str, folder: Path) -> list[Path]:
    """Draw the pictures as SVG, the same bytes from the same figures. Needs matplotlib."""
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
        "sweeps": (
            "Throughput against the size of a submit, and against slots",
            ("sweep_batch", "sweep_slots"),
            _sweeps,
        ),
        "latency": ("From the submit to the first line of the task, on an idle queue", LATENCY, _latency),
        "memory": (
            "What a job of 200 bytes takes in Redis, bytes",
            ("memory_pending", "memory_finished"),
            _memory,
        ),
    }
    drawn = []
    for name, (title, workloads, paint) in pictures.items():
        by_workload = {
            one: [row for row in rows if row["workload"] == one and row["values"]] for one in workloads
        }
        known = all(by_workload.values())
        drawn.append(
            _picture(
                folder / f"performance-{name}.svg",
                title,
                legend,
                by_workload,
                names,
                paint if known else _nothing,
            )
        )
    return drawn


def _nothing(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    figure.text(0.5, 0.4, "Not measured in this run.", ha="center", va="center")


def _picture(
    path: Path, title: str, legend: str, rows: dict[str, list[Row]], names: Names, paint: Callable[..., None]
) -> Path:
    from matplotlib import pyplot

    bars = max((len(some) for some in rows.values()), default=0)
    figure = pyplot.figure(
        figsize=(9, 3.9 if paint is _sweeps else 1.1 + (0.25 if paint is _latency else 0.2) * max(8, bars))
    )
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
    order = _order(rows["drain_1"], [row for some in rows.values() for row in some], most=True)
    titles = ("drained by one worker", "submitted one by one", "submitted in bulk")
    for axes, (workload, some), title in zip(_columns(figure, 3, 0.2), rows.items(), titles, strict=True):
        _bars(axes, order, {row["contestant"]: row["median"] for row in some}, names, workload == "drain_1")
        axes.set_title(title)


def _memory(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    order = _order(rows["memory_pending"], [row for some in rows.values() for row in some], most=False)
    titles = ("that waits", "that is finished, as long as it is kept")
    for axes, (workload, some), title in zip(_columns(figure, 2, 0.2), rows.items(), titles, strict=True):
        _bars(
            axes,
            order,
            {row["contestant"]: row["median"] for row in some},
            names,
            workload == "memory_pending",
        )
        axes.set_title(title)


def _sweeps(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    words = (("jobs in a submit", "submitted a second"), ("slots of the worker", "drained a second"))
    for axes, some, (below, title) in zip(_columns(figure, 2, 0.07), rows.values(), words, strict=True):
        styles = _styles(dict.fromkeys(row["contestant"] for row in some))
        for name, (colour, marker, style) in styles.items():
            points = sorted(
                (row["at"], row["median"]) for row in some if row["contestant"] == name and row["median"]
            )
            axes.plot(
                *zip(*points, strict=True), color=colour, marker=marker, linestyle=style, markersize=4.5
            )
            axes.lines[-1].set_label(names.get(name, name))
        ticks = sorted({row["at"] for row in some})
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_xlabel(below)
        highest = max(row["median"] for row in some if row["median"])
        axes.set_ylim(0, 1.15 * highest)
        for tick in ticks:
            here = [
                (row["median"], styles[row["contestant"]][0])
                for row in some
                if row["at"] == tick and row["median"]
            ]
            _label(axes, tick, sorted(here))
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
        axes.grid(axis="y", color="#D0D7DE", linewidth=0.6)
        axes.legend(loc="upper left")
        axes.set_title(title)


def _label(axes: "Axes", x: float, points: Sequence[tuple[float, str]]) -> None:
    floor = 0.12 * axes.get_ylim()[1]
    for y, colour in points:
        where, how = (0, 6), "center"
        if y != points[-1][0]:
            where, how = ((7, -4), "left") if y < floor else ((0, -13), "center")
        axes.annotate(_short(y), (x, y), where, textcoords="offset points", ha=how, fontsize=8, color=colour)


def _styles(names: Iterable[str]) -> dict[str, Any]:
    others = iter(LINES[1:])
    return {name: LINES[0] if name == "sublet" else next(others) for name in names}


def _latency(figure: "Figure", rows: dict[str, list[Row]], names: Names) -> None:
    shares = [{row["contestant"]: row["median"] for row in rows[workload]} for workload in LATENCY[1:]]
    order = sorted(
        (name for name in shares[0] if shares[0][name] is not None), key=lambda name: shares[0][name]
    )
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.065, wspace=0.45)
    _distribution(
        left,
        {row["contestant"]: row["values"] for row in rows["latency"] if len(row["values"]) > 1},
        order,
        names,
    )
    for place, name in enumerate(order):
        colour = OURS if name.startswith("sublet") else "#6E7781"
        middle, most, nearly_all = (share[name] for share in shares)
        right.plot((middle, nearly_all), (place, place), color=colour, linewidth=1)
        right.plot((middle, most), (place, place), color=colour, linewidth=4.5, solid_capstyle="butt")
        right.plot(middle, place, "o", color=PAPER, markeredgecolor=colour, markersize=5.5)
        shown = f"{number(middle)} / {number(nearly_all)}"
        right.annotate(
            shown, (nearly_all, place), (5, 0), textcoords="offset points", va="center", fontsize=8
        )
    right.set_yticks(range(len(order)), [names.get(name, name) for name in order])
    right.set_ylim(len(order) - 0.4, -0.8)
    right.tick_params(axis="y", length=0)
    for axes in (left, right):
        axes.set_xscale("log")
    right.set_title("ring p50, thick to p95, thin to p99; p50 / p99")
    for axes, room in ((left, 3), (right, 3)):
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * room)  # space for the legend and the numbers
        _milliseconds(axes)


def _distribution(
    axes: "Axes", samples: dict[str, Sequence[float]], order: Sequence[str], names: Names
) -> None:
    fastest = [name for name in order if name in samples][:FASTEST]
    drawn = fastest if "sublet" in fastest or "sublet" not in samples else [*fastest, "sublet"]
    for name, (colour, _, style) in _styles(drawn).items():
        cuts = statistics.quantiles(samples[name], n=100, method="inclusive")  # as the run itself takes them
        points = [min(samples[name]), *cuts, max(samples[name])]
        axes.plot(points, range(101), color=colour, linestyle=style, label=names.get(name, name))
    axes.set_ylabel("% of the jobs have started")
    axes.set_title(f"the {len(fastest)} fastest{', and ours' * (drawn is not fastest)}: all samples")
    axes.legend(loc="lower right")


def _milliseconds(axes: "Axes") -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(
        lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" and _narrow(axes) else ""
    )
    axes.set_xlabel("ms")
    axes.grid(axis="x", color="#D0D7DE", linewidth=0.6)
    axes.set_axisbelow(True)


def _narrow(axes: "Axes") -> bool:
    low, high = axes.get_xlim()
    return math.log10(high / low) < 2


def _columns(figure: "Figure", number: int, left: float) -> list["Axes"]:
    figure.subplots_adjust(left=left, wspace=0.17)
    return list(figure.subplots(1, number))


def _order(first: Sequence[Row], all_rows: Sequence[Row], *, most: bool) -> list[str]:
    placed = sorted(
        (row for row in first if row["median"] is not None), key=lambda row: row["median"], reverse=most
    )
    return list(dict.fromkeys(row["contestant"] for row in [*placed, *all_rows]))


def _bars(
    axes: "Axes", order: Sequence[str], medians: dict[str, float | None], names: Names, named: bool
) -> None:
    values = [medians.get(name) or 0.0 for name in order]
    axes.barh(
        range(len(order)),
        values,
        color=[OURS if name.startswith("sublet") else THEIRS for name in order],
        height=0.72,
    )
    for place, value in enumerate(values):
        if value:
            axes.annotate(
                f"{value:,.0f}", (value, place), (3, 0), textcoords="offset points", va="center", fontsize=8
            )
    axes.set_yticks(
        range(len(order)), [names.get(name, name) for name in order] if named else [""] * len(order)
    )
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0, max(values) * 1.27)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def _short(value: float) -> str:
    return f"{value / 1e3:.3g}k" if value >= 1000 else f"{value:.3g}"
