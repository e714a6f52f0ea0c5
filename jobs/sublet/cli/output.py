"""Terminal output: colours, columns, JSON.

All output passes `put`, which replaces control characters, and marks that reorder text, by spaces.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from sublet.operations.text import duration as duration

if TYPE_CHECKING:
    from sublet.model import Queue

_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}
STATE_COLOURS = {
    "scheduled": "cyan",
    "queued": "",
    "running": "yellow",
    "completed": "green",
    "dead": "red",
    "cancelled": "dim",
}

LEAST = 20

_MARK = f"\x1b{os.urandom(8).hex()}"
_PAINTED = re.compile(rf"{_MARK}(\d+);")


_FLOW = ("concurrency", "rate", "per", "burst")


class Cell(NamedTuple):
    """A text in a table, and the name of its colour (empty: none)."""

    text: str
    colour: str = ""


def has_colours(stream: TextIO) -> bool:
    """Whether a stream is a terminal, without NO_COLOR and TERM=dumb."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Return the text, marked for `put` with a colour if the stream (stdout by default) `has_colours`."""
    if not text or colour not in _CODES or not has_colours(stream or sys.stdout):
        return text
    return f"{_MARK}{_CODES[colour]};{text}{_MARK}0;"


def clean(text: str) -> str:
    """Return the text with a space for each unprintable character, e.g. a line end or a reordering mark."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def escaped(text: str) -> str:
    """Return JSON with a `\\u` escape for each unprintable character; line ends stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def put(*lines: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Write lines to stdout or `stream`, without control characters, in the colours that `paint` gave them."""
    (stream or sys.stdout).write("".join(_shown(line) + end for line in lines))


def _shown(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(f"\x1b[{part}m" if i % 2 else clean(part) for i, part in enumerate(_PAINTED.split(line)))


def write(text: str = "") -> None:
    """Write a line to stdout."""
    put(text)


def note(text: str) -> None:
    """Write a dimmed line to stderr, after what stdout has so far."""
    sys.stdout.flush()
    put(paint(text, "dim", sys.stderr), stream=sys.stderr)


def ask(question: str) -> str:
    """Write a question to stderr; return the stripped line of stdin."""
    put(question, stream=sys.stderr, end="")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def progress(text: str) -> None:
    """Replace the last line of stderr by this text, on a terminal; an empty text clears it."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        put(text, stream=sys.stderr, end="")
        sys.stderr.flush()


def document(value: Any) -> None:
    """Write JSON to stdout: indented on a terminal, else on one line. NaN and infinity become null."""
    indent = 2 if sys.stdout.isatty() else None
    try:
        text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        value = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False, indent=indent)
    put(*escaped(text).split("\n"))


def compact(value: Any) -> str:
    """Return a value as JSON on one line."""
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def is_narrow(columns: int) -> bool:
    """Whether stdout is a terminal with fewer than `columns` columns."""
    return sys.stdout.isatty() and _columns() < columns


def fit(text: str, used: int = 0) -> str:
    """Return the text; on a terminal, cut to the columns (20 or more) that remain beside `used` ones."""
    room = max(LEAST, _columns() - used)
    return text if len(text) <= room or not sys.stdout.isatty() else text[: room - 1] + "…"


def table(heads: Sequence[str], rows: Sequence[Sequence[Cell | str]], spare: Sequence[str] = ()) -> None:
    """Print rows below heads: numbers right-aligned, the last column cut to the terminal.

    On a narrow terminal, leave out the columns in `spare`, one after the other, until the table fits.
    """
    cells = [
        [Cell(clean(c)) if isinstance(c, str) else Cell(clean(c.text), c.colour) for c in row] for row in rows
    ]
    widths = [
        max(len(text) for text in (head, *(row[i].text for row in cells))) for i, head in enumerate(heads)
    ]
    if spare and is_narrow(sum(widths[:-1]) + min(widths[-1], LEAST) + 2 * (len(widths) - 1)):
        at = heads.index(spare[0])
        table([*heads[:at], *heads[at + 1 :]], [[*row[:at], *row[at + 1 :]] for row in cells], spare[1:])
        return
    right = [
        bool(cells) and all(row[i].text.replace(",", "").isdigit() for row in cells)
        for i in range(len(heads))
    ]
    for row in ([Cell(head, "dim") for head in heads], *cells):
        write(_row(row, widths, right))


def _row(row: Sequence[Cell], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for i, cell in enumerate(row):
        text = cell.text.rjust(widths[i]) if right[i] else cell.text
        if i == len(row) - 1:
            text = fit(text, sum(widths[:i]) + 2 * i)
        parts.append(paint(text, cell.colour) + " " * (widths[i] - len(text)))
    return "  ".join(parts).rstrip()


def limits_of(queue: "Queue") -> str:
    """Return a queue's limits as text; "" without any."""
    return limit_text(queue.limits)


def limit_text(limits: Mapping[str, float]) -> str:
    """Return limits as text: "100 jobs, 5 at once, 60 per 60 s, each group: 2 at once"."""
    plain = [f"{limit:,} {name}" for name, limit in limits.items() if not name.endswith(_FLOW)]
    own, each = (
        _flow_text(
            {n.removeprefix(kind): v for n, v in limits.items() if n.startswith("group_") == bool(kind)}
        )
        for kind in ("", "group_")
    )
    return ", ".join([*plain, *own, *(["each group: " + ", ".join(each)] if each else [])])


def _flow_text(limits: Mapping[str, float]) -> list[str]:
    found = [f"{limits['concurrency']:,} at once"] if "concurrency" in limits else []
    if "rate" in limits and "per" in limits:
        burst = f" (burst {limits['burst']:,})" if "burst" in limits else ""
        found.append(f"{limits['rate']:,} per {limits['per']:g} s{burst}")
    return found
