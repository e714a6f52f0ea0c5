"""The pictures and tables of `growth.py`: µs of Redis's CPU per job, and as a multiple of the smallest point."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

SCRIPTS = {"submit": "#56B4E9", "claim": "#E69F00", "complete": "#009E73"}
SERIES = (("#000000", "o", "-"), ("#D55E00", "s", "--"), ("#CC79A7", "^", ":"))
PAPER, INK = "#FCFCFA", "#24292F"
"""Colours of background and lines, readable on a light and on a dark page."""
DRAWN = {
    "backlog": ("The cost of a job against the backlog", "jobs that wait"),
    "finished": ("The cost of a job against the finished jobs kept", "finished jobs kept"),
    "queues": ("The cost of a job against the number of queues", "queues"),
    "payload": ("The cost of a job against its payload", "KiB of payload"),
}
"""The axes that have a picture: title, and label of the x axis."""
COLUMNS = {
    "submit_us": "submit µs", "claim_us": "claim µs", "complete_us": "complete µs", "redis_us": "Redis CPU µs", "relative": "×",
    "wall_submit_us": "client submit µs", "wall_drain_us": "client drain µs", "fastest_drain_us": "fastest drain µs",
    "drain_rate": "drain rate ×", "hold_ms": "longest hold ms", "bytes": "bytes a job",
}  # fmt: skip


def tables(found: dict[str, Any]) -> str:
    parts = [
        f"{found['server']}; {found['jobs']:,} jobs a measurement, median of {found['rounds']} rounds; per job"
    ]
    for name, rows in found["axes"].items():
        parts.append(f"### {name}\n\n" + _table([_shown(row) for row in rows]))
    for name, rows in found["tables"].items():
        parts.append(f"### {name.replace('_', ' ')}\n\n" + _table(rows))
    return "\n\n".join(parts)


def _shown(row: Row) -> Row:
    return {"series": row["series"], "x": row["x"]} | {word: row[name] for name, word in COLUMNS.items()}


def _table(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [
        names,
        ["---"] + ["--:"] * (len(names) - 1),
        *([_cell(row.get(name, "")) for name in names] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if value < 10 else f"{value:.1f}"


def draw(found: dict[str, Any], folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {
        "svg.fonttype": "none", "svg.hashsalt": "growth", "font.family": ["DejaVu Sans", "sans-serif"], "font.size": 9,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9.5, "axes.titlelocation": "left",
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": "#8C959F",
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "legend.frameon": False,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    return [_picture(found, name, folder / f"growth-{name}.svg") for name in DRAWN if name in found["axes"]]


def _picture(found: dict[str, Any], name: str, path: Path) -> Path:
    from matplotlib import pyplot

    rows: list[Row] = found["axes"][name]
    title, words = DRAWN[name]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.9), width_ratios=(1, 1))
    figure.suptitle(title, x=0.012, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.012, 0.885, _legend(found), fontsize=8, color="#57606A")
    series = _series(rows)
    (_lines if name == "payload" else _bands)(left, next(iter(series.values())), len(series) > 1)
    _relative(right, series, name == "payload")
    for axes in (left, right):
        _ticks(axes, [row["x"] for row in rows])
        axes.set_xlabel(words)
        axes.grid(axis="y", color="#D0D7DE", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.subplots_adjust(left=0.07, right=0.985, top=0.76, bottom=0.135, wspace=0.17)
    figure.savefig(path, metadata={"Date": None, "Creator": "bench/growth.py"})
    pyplot.close(figure)
    return path


def _legend(found: dict[str, Any]) -> str:
    server = found["server"].capitalize()
    return (
        f"{server}, calls of up to 200 submits and 100 claims or completions; "
        f"median of {found['rounds']} rounds of up to {found['jobs']:,} jobs"
    )


def _series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["series"], []).append(row)
    return found


def _share(script: str, row: Row) -> float:
    return float(row[f"{script}_us"] / sum(row[f"{name}_us"] for name in SCRIPTS))


def _bands(axes: "Axes", rows: Sequence[Row], named: bool) -> None:
    xs = _places([row["x"] for row in rows])
    floor = [0.0] * len(rows)
    for script, colour in SCRIPTS.items():
        top = [low + row["redis_us"] * _share(script, row) for low, row in zip(floor, rows, strict=True)]
        axes.fill_between(xs, floor, top, color=colour, linewidth=0)
        axes.text(xs[0] * 1.25, (floor[0] + top[0]) / 2, script, va="center", color="#000000", fontsize=9)
        floor = top
    axes.plot(xs, floor, color="#000000", marker="o", markersize=4, linewidth=1.4)
    for x, y in zip(xs, floor, strict=True):
        axes.annotate(f"{y:.1f}", (x, y), (0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_ylim(0, max(floor) * 1.22)
    axes.set_title("µs of Redis's CPU per job, by script" + (f" ({rows[0]['series']})" if named else ""))


def _lines(axes: "Axes", rows: Sequence[Row], named: bool) -> None:
    xs = _places([row["x"] for row in rows])
    for (script, colour), (_, marker, _) in zip(SCRIPTS.items(), SERIES, strict=True):
        ys = [row["redis_us"] * _share(script, row) for row in rows]
        axes.plot(xs, ys, color=colour, marker=marker, markersize=4.5, label=script)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(loc="upper left")
    axes.set_title("µs of Redis's CPU per job, by script" + (f" ({rows[0]['series']})" if named else ""))


def _relative(axes: "Axes", series: dict[str, list[Row]], steep: bool) -> None:
    highest = 1.0
    for (name, rows), (colour, marker, style) in zip(series.items(), SERIES, strict=False):
        ys = [row["relative"] for row in rows]
        axes.plot(_places([row["x"] for row in rows]), ys, style, color=colour, marker=marker, markersize=4.5)
        axes.lines[-1].set_label(f"{name}: {ys[-1]:.2f}× at {_short(rows[-1]['x'])}")
        highest = max(highest, *ys)
    if steep:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(0, max(1.5, highest * 1.2))
    axes.axhline(1, color="#8C959F", linewidth=0.9)
    axes.legend(loc="upper left" if steep else "lower left")
    axes.set_title("the same as a multiple of the smallest point")


def _places(xs: Iterable[float]) -> list[float]:
    some = [x for x in xs if x]
    return [x or min(some) / 10 for x in xs]


def _ticks(axes: "Axes", xs: Sequence[float]) -> None:
    values = sorted(set(xs))
    axes.set_xscale("log")
    axes.minorticks_off()
    round_ones = [x for x in values if f"{x:e}"[:6] in ("0.0000", "1.0000") or (x < 1000 and x != 1.5)]
    axes.set_xticks(_places(round_ones), [_short(x) for x in round_ones])


def _short(x: float) -> str:
    return f"{x / 1e6:g} M" if x >= 1e6 else f"{x / 1e3:g} k" if x >= 1e3 else f"{x:g}"
