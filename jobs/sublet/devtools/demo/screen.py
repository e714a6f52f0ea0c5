"""The demo's output: a progress bar above events, or plain lines without a terminal."""

import os
import time
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

EVERY = 2.0
FRAME = 0.1

COLOURS = {
    "✗": "red",
    "‖": "cyan",
    "↻": "green",
    "▶": "cyan",
    "⊘": "yellow",
    "!": "red",
    "●": "green",
    "+": "green",
    "·": "dim",
}


class Progress(NamedTuple):
    """Numbers of jobs; jobs per second (`rate`); seconds since the submit."""

    submitted: int
    ended: int
    running: int
    rate: float
    seconds: float


class WorkerStatus(NamedTuple):
    """One worker's name, a sign, and text."""

    name: str
    sign: str
    words: str


class Screen:
    """Prints to a stream. Colours and the live display need a terminal (not dumb) and no NO_COLOR."""

    def __init__(self, stream: TextIO, console: Console | None = None) -> None:
        self.plain = (
            not stream.isatty()
            or bool(os.environ.get("NO_COLOR"))
            or os.environ.get("TERM", "dumb") == "dumb"
        )
        self.console = console or (
            Console(
                file=stream,
                highlight=False,
                emoji=False,
                force_terminal=False,
                color_system=None,
                soft_wrap=True,
                width=110,
            )
            if self.plain
            else Console(file=stream, highlight=False, emoji=False)
        )
        self._events: list[tuple[float, str, str]] = []
        self._live: Live | None = None
        self._next = 0.0

    def print(self, words: str = "") -> None:
        """Print rich markup without wrapping."""
        self.console.print(words, soft_wrap=True)

    def fact(self, name: str, words: str) -> None:
        """Print a name and its value."""
        self.console.print(f"  [dim]{name:<9}[/dim]{escape(words)}")

    def phrases(self, phrases: Sequence[str], style: str = "") -> None:
        """Print phrases separated by dots. Lines break there, and within a phrase that is wider than the screen."""
        lines = [""]
        for phrase in phrases:
            longer = f"{lines[-1]} · {phrase}" if lines[-1] else f"  {phrase}"
            if len(longer) <= self.console.width or self.plain:
                lines[-1] = longer
            else:
                lines.append(f"  {phrase}")
        self.console.print(Text("\n".join(lines), style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table, all but the first column right-aligned."""
        table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
        for i, head in enumerate(heads):
            table.add_column(head, justify="right" if i else "left", overflow="ellipsis", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        self.console.print(Padding(table, (0, 0, 0, 2), expand=False), soft_wrap=False)

    def add_event(self, seconds: float, sign: str, words: str) -> None:
        """Show an event: below the bar at the next `draw`; if plain, at once as a line."""
        self._events.append((seconds, sign, words))
        if self.plain:
            self.console.print(f"{seconds:6.1f} s  {sign} {escape(words)}")

    def draw(self, progress: Progress, workers: Sequence[WorkerStatus], *, last: bool = False) -> None:
        """Draw the progress, at most every 0.1 s (lines: 2 s) unless `last`, which ends the live display."""
        now = time.monotonic()
        if now < self._next and not last:
            return
        if self.plain and not self._next and not last:
            self._next = now + EVERY
            return
        self._next = now + (EVERY if self.plain else FRAME)
        if self.plain:
            self.console.print(f"{progress.seconds:6.1f} s    {_count(progress)}")
            return
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(self._render(progress, workers), refresh=True)
        if last:
            self.close()

    def close(self) -> None:
        """End the live display; its last picture stays."""
        if self._live:
            self._live.stop()
            self._live = None

    def _render(self, progress: Progress, workers: Sequence[WorkerStatus]) -> RenderableType:
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(width=1)
        bar.add_column(ratio=1)
        bar.add_column(width=6, justify="right")
        bar.add_row(
            "", ProgressBar(progress.submitted, progress.ended), f"{progress.ended / progress.submitted:.0%}"
        )
        statuses = Text("  ")
        for worker in workers:
            statuses.append(f"{worker.name} ", "dim").append(worker.sign, COLOURS.get(worker.sign, ""))
            statuses.append(f" {worker.words}").append("     ")
        events = Table.grid(padding=(0, 1))
        events.add_column(justify="right", style="dim", no_wrap=True, min_width=7)
        events.add_column()
        events.add_column()
        for seconds, sign, words in self._events:
            events.add_row(f"{seconds:.1f} s", Text(sign, COLOURS.get(sign, "")), Text(words))
        counts = Text(f"  {_count(progress)} · {progress.seconds:.1f} s")
        return Group(bar, counts, statuses, Text(), events)


def _count(progress: Progress) -> str:
    words = f"{progress.ended:,} of {progress.submitted:,} done · {progress.running} running"
    if not (progress.ended or progress.running):
        words += " · waiting for the first workers"
    return f"{words} · {progress.rate:,.0f}/s"
