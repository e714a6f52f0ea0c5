"""A progress bar on stderr, if that is a terminal."""

import os
import shutil
import sys
import time

from sublet.cli.output import progress

WIDTH = 24
INTERVAL = 0.1


class ProgressBar:
    """Shows the progress of a long command, on one line; the end of the `with` block clears it."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown_at = float("-inf")

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._write("")

    def step(self, name: str) -> None:
        """Show a step that has no count."""
        self._write(f"{name} …")

    def count(self, done: int, total: int, unit: str) -> None:
        """Show `done` of about `total` units, such as "jobs cancelled"; at most ten times a second."""
        now = time.monotonic()
        if self._live and (done >= total or now - self._shown_at >= INTERVAL):
            self._shown_at = now
            total = max(total, done, 1)
            filled = WIDTH * done // total
            self._write(f"{'█' * filled}{'░' * (WIDTH - filled)} {done:,} of {total:,} {unit}")

    def _write(self, text: str) -> None:
        if self._live:
            progress(text[: shutil.get_terminal_size().columns - 1])
