"""A record outside Redis: each process writes the events that it observed to a file of its own.

Each entry is appended by one write, so it is complete or missing however the process dies. Workers write
with `sublet work --json`, the other processes with an `EntryWriter`.
"""

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

OWN_EVENTS = frozenset({"planned", "sent", "acked", "unknown", "rejected", "fault", "healed"})
"""Events of producers and of the harness. (`planned`: perhaps stored, and perhaps not acknowledged.) All others are those of workers (`docs/guides/workers.md`)."""


class Entry(NamedTuple):
    """One observed event. `at` is in seconds since 1970, by this machine's clock, which no scenario changes."""

    at: float
    event: str
    process: str
    id: str = ""
    attempt: int = 0
    detail: str = ""


class EntryWriter:
    """Appends entries to a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: str, job_id: str = "", detail: str = "", attempt: int = 0) -> None:
        """Write one entry. It is stored on return, however this process ends."""
        entry = {"event": event, "at": time.time(), "id": job_id, "detail": detail, "attempt": attempt}
        os.write(self._file, (json.dumps(entry) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Ledger:
    """A folder with one file per process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, process: str) -> Path:
        """The file of a process."""
        return self.folder / f"{process}.jsonl"

    def writer(self, process: str) -> EntryWriter:
        """A writer for a process."""
        return EntryWriter(self.path(process))

    def entries(self) -> list[Entry]:
        """All entries in the order of time."""
        return sorted(entry for path in self.folder.glob("*.jsonl") for entry in _lines(path))

    def by(self, process: str) -> list[Entry]:
        """The entries of one process."""
        return list(_lines(self.path(process))) if self.path(process).exists() else []

    def of(self, *events: str) -> list[Entry]:
        """The entries of these events."""
        return [entry for entry in self.entries() if entry.event in events]


def _lines(path: Path) -> Iterator[Entry]:
    for text in path.read_text(errors="replace").splitlines(keepends=True):
        if not text.endswith("\n"):  # its writer was killed, or is still writing
            continue
        fields: dict[str, Any] = json.loads(text)
        detail = str(fields.get("state") or fields.get("detail") or "")
        yield Entry(
            _moment(fields["at"]),
            fields["event"],
            path.stem,
            fields.get("id", ""),
            fields.get("attempt", 0),
            detail,
        )


def _moment(at: float | str) -> float:
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at
