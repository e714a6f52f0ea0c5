"""Where the story is told: lines for a pipe or a file; on a terminal a bar that moves, and what happened below it."""

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
"""Seconds between the lines that stand for the bar where there is no terminal."""
FRAME = 0.1
"""Seconds between two pictures of the bar."""

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


class Numbers(NamedTuple):
    """How far the work is."""

    submitted: int
    ended: int
    running: int
    rate: float
    seconds: float


class Member(NamedTuple):
    """How one worker fares: its name, a sign, and words."""

    name: str
    sign: str
    words: str


class Screen:
    """Tells the story on a stream. Colours and moving parts only on a terminal, and not with NO_COLOR."""

    def __init__(self, stream: TextIO) -> None:
        self.plain = (
            not stream.isatty()
            or bool(os.environ.get("NO_COLOR"))
            or os.environ.get("TERM", "dumb") == "dumb"
        )
        self.console = (
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
        self._happenings: list[tuple[float, str, str]] = []
        self._live: Live | None = None
        self._next = 0.0

    def say(self, words: str = "") -> None:
        """One line; rich's markup is understood."""
        self.console.print(words, soft_wrap=True)  # what is to be copied must not be broken

    def point(self, name: str, words: str) -> None:
        """One line of the banner: what it is about, then what there is to say."""
        self.console.print(f"  [dim]{name:<9}[/dim]{escape(words)}")

    def parts(self, parts: Sequence[str], style: str = "") -> None:
        """Some words with dots between; in a narrow terminal on several lines, broken at the dots."""
        lines = [""]
        for part in parts:
            longer = f"{lines[-1]} · {part}" if lines[-1] else f"  {part}"
            if len(longer) <= self.console.width or self.plain:
                lines[-1] = longer
            else:
                lines.append(f"  {part}")
        self.console.print(Text("\n".join(lines), style))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; the first column is words, the others are numbers."""
        table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
        for i, head in enumerate(heads):
            table.add_column(head, justify="right" if i else "left", overflow="ellipsis", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        self.console.print(Padding(table, (0, 0, 0, 2), expand=False), soft_wrap=False)

    def happen(self, seconds: float, sign: str, words: str) -> None:
        """Something happened."""
        self._happenings.append((seconds, sign, words))
        if self.plain:
            self.console.print(f"{seconds:6.1f} s  {sign} {escape(words)}")

    def show(self, numbers: Numbers, members: Sequence[Member], *, last: bool = False) -> None:
        """Paint how far it is, if it is time for that or this is the last picture."""
        now = time.monotonic()
        if now < self._next and not last:
            return
        if self.plain and not self._next and not last:
            self._next = now + EVERY
            return
        self._next = now + (EVERY if self.plain else FRAME)
        if self.plain:
            self.console.print(f"{numbers.seconds:6.1f} s    {_count(numbers)}")
            return
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(self._picture(numbers, members), refresh=True)
        if last:
            self.close()

    def close(self) -> None:
        """Leave the last picture as it is, and give the cursor back."""
        if self._live:
            self._live.stop()
            self._live = None

    def _picture(self, numbers: Numbers, members: Sequence[Member]) -> RenderableType:
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(width=1)
        bar.add_column(ratio=1)
        bar.add_column(width=6, justify="right")
        bar.add_row(
            "", ProgressBar(numbers.submitted, numbers.ended), f"{numbers.ended / numbers.submitted:.0%}"
        )
        cast = Text("  ")
        for member in members:
            cast.append(f"{member.name} ", "dim").append(member.sign, COLOURS.get(member.sign, ""))
            cast.append(f" {member.words}").append("     ")
        story = Table.grid(padding=(0, 1))
        story.add_column(justify="right", style="dim", no_wrap=True, min_width=7)
        story.add_column()
        story.add_column()
        for seconds, sign, words in self._happenings:
            story.add_row(f"{seconds:.1f} s", Text(sign, COLOURS.get(sign, "")), Text(words))
        return Group(bar, Text(f"  {_count(numbers)}"), cast, Text(), story)


def _count(numbers: Numbers) -> str:
    words = f"{numbers.ended:,} of {numbers.submitted:,} done · {numbers.running} running"
    return f"{words} · {numbers.rate:,.0f}/s · {numbers.seconds:.1f} s"
