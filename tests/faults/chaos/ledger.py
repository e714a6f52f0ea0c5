"""The truth outside Redis: what was sent, acknowledged, started and accepted, each entry written by whoever saw it.

Each process has a file of its own, which it only adds to, a entry in one write: so a entry is there whole, or not at all, however
the process dies. Workers write theirs by `sublet work --json`; producers, and whoever makes the trouble, by a `EntryWriter`.
"""

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

OWN_EVENTS = frozenset({"sent", "acked", "unknown", "rejected", "fault", "healed"})
"""The words of producers and of whoever makes trouble; all others are those of workers (`docs/guides/workers.md`)."""


class Entry(NamedTuple):
    """One thing that somebody saw. `at` is in seconds since 1970, by this machine's clock, which nobody makes jump."""

    at: float
    event: str
    process: str
    id: str = ""
    attempt: int = 0
    words: str = ""


class EntryWriter:
    """Writes entries to a file of its own."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: str, job_id: str = "", words: str = "", attempt: int = 0) -> None:
        """Write one entry; it is there when this returns, however this process ends."""
        said = {"event": event, "at": time.time(), "id": job_id, "words": words, "attempt": attempt}
        os.write(self._file, (json.dumps(said) + "\n").encode())

    def close(self) -> None:
        """Put the writer down."""
        os.close(self._file)


class Ledger:
    """A folder of such files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, process: str) -> Path:
        """The file of somebody."""
        return self.folder / f"{process}.jsonl"

    def writer(self, process: str) -> EntryWriter:
        """A writer for somebody."""
        return EntryWriter(self.path(process))

    def entries(self) -> list[Entry]:
        """All that was written, in the order of its moments."""
        return sorted(entry for path in self.folder.glob("*.jsonl") for entry in _lines(path))

    def by(self, process: str) -> list[Entry]:
        """What one of them wrote."""
        return list(_lines(self.path(process))) if self.path(process).exists() else []

    def of(self, *events: str) -> list[Entry]:
        """The entries with these words."""
        return [entry for entry in self.entries() if entry.event in events]


def _lines(path: Path) -> Iterator[Entry]:
    for text in path.read_text(errors="replace").splitlines(keepends=True):
        if not text.endswith("\n"):  # whoever wrote it was killed by then, or writes on
            continue
        said: dict[str, Any] = json.loads(text)
        words = str(said.get("state") or said.get("words") or "")
        yield Entry(
            _moment(said["at"]), said["event"], path.stem, said.get("id", ""), said.get("attempt", 0), words
        )


def _moment(at: float | str) -> float:
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at
