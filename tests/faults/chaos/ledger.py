"""The truth outside Redis: what was sent, acknowledged, started and accepted, each line written by whoever saw it.

Each process has a file of its own, which it only adds to, a line in one write: so a line is there whole, or not at all, however
the process dies. Workers write theirs by `sublet work --json`; producers, and whoever makes the trouble, by a `Pen`.
"""

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

OURS = frozenset({"sent", "acked", "unknown", "refused-at-the-door", "fault", "healed"})
"""The words of producers and of whoever makes trouble; all others are those of workers (`docs/guides/workers.md`)."""


class Line(NamedTuple):
    """One thing that somebody saw. `at` is in seconds since 1970, by this machine's clock, which nobody makes jump."""

    at: float
    event: str
    who: str
    id: str = ""
    attempt: int = 0
    words: str = ""


class Pen:
    """Writes lines to a file of its own."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: str, job_id: str = "", words: str = "", attempt: int = 0) -> None:
        """Write one line; it is there when this returns, however this process ends."""
        said = {"event": event, "at": time.time(), "id": job_id, "words": words, "attempt": attempt}
        os.write(self._file, (json.dumps(said) + "\n").encode())

    def close(self) -> None:
        """Put the pen down."""
        os.close(self._file)


class Ledger:
    """A folder of such files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, who: str) -> Path:
        """The file of somebody."""
        return self.folder / f"{who}.jsonl"

    def pen(self, who: str) -> Pen:
        """A pen for somebody."""
        return Pen(self.path(who))

    def lines(self) -> list[Line]:
        """All that was written, in the order of its moments."""
        return sorted(line for path in self.folder.glob("*.jsonl") for line in _lines(path))

    def by(self, who: str) -> list[Line]:
        """What one of them wrote."""
        return list(_lines(self.path(who))) if self.path(who).exists() else []

    def of(self, *events: str) -> list[Line]:
        """The lines with these words."""
        return [line for line in self.lines() if line.event in events]


def _lines(path: Path) -> Iterator[Line]:
    for text in path.read_text(errors="replace").splitlines(keepends=True):
        if not text.endswith("\n"):  # whoever wrote it was killed by then, or writes on
            continue
        said: dict[str, Any] = json.loads(text)
        words = str(said.get("state") or said.get("words") or "")
        yield Line(
            _moment(said["at"]), said["event"], path.stem, said.get("id", ""), said.get("attempt", 0), words
        )


def _moment(at: float | str) -> float:
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at
