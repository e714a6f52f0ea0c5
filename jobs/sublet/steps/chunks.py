"""The calls that append and read the stream of a job."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sublet.model import FINISHED, Lease, State
from sublet.protocol import keys
from sublet.protocol.reads import json_of, pairs, shown, together
from sublet.protocol.scripts import Call, script

CHUNK_MAX = 64 * 1024
EMIT_MAX = 100
PAGE = 100


class Chunk(NamedTuple):
    """A value that a running task emitted."""

    value: Any
    attempt: int
    """The attempt that emitted it."""
    id: int
    """Its number, to read on after it."""
    missed: bool = False
    """Whether chunks just before it were dropped unread."""


class Emission(NamedTuple):
    """Up to 100 chunks (JSON) of an attempt, and how many it emitted before, so that a repeated call appends
    none twice (None: append all).
    """

    before: int | None
    chunks: Sequence[bytes]


class StreamEntry(NamedTuple):
    """A chunk (JSON), or, with an empty `chunk`, the beginning of an attempt."""

    id: int
    attempt: int
    chunk: bytes


class StreamPage(NamedTuple):
    """Entries of a job's stream after a number."""

    entries: list[StreamEntry]
    cursor: int
    """The number to read on after."""
    missed: bool
    """Whether entries after the caller's number were dropped."""
    more: bool
    """Whether there may be more entries: read again at once."""
    state: State | None
    """The job's state; None: no such job."""
    is_watched: bool
    """Whether the job's chunks and end are published: a reader called `watch`, or a job waits for it."""

    @property
    def is_over(self) -> bool:
        """Whether the stream ends with this page."""
        return not self.more and (self.state is None or self.state in FINISHED)

    def chunks(self) -> list[Chunk]:
        """Return the page's chunks."""
        found = [Chunk(json_of(one.chunk), one.attempt, one.id) for one in self.entries if one.chunk]
        return [found[0]._replace(missed=True), *found[1:]] if found and self.missed else found


def emit(base: str, lease: Lease, emission: Emission) -> Call[str]:
    """Append chunks to the stream of a running job; returns `emitted`. Raises LeaseLost, NotFound, Invalid, OutOfMemory."""
    before, chunks = emission
    return script("emit").call(
        base, bytes.decode, chunks, id=lease.id, token=lease.token, before="" if before is None else before
    )


def read_stream(base: str, job_id: str, after: int, count: int = PAGE) -> Call[StreamPage]:
    """Read up to `count` entries after a number, 0: from the oldest. If none from `after` on is left
    (a new, shorter stream): an empty page with cursor 0, `missed` and `more`.
    """

    def read(reply: Sequence[Any]) -> StreamPage:
        (state, watched), rows = reply
        entries = [_entry(row) for row in rows or ()]
        following = [entry for entry in entries if entry.id > after][:count]
        standing = State(shown(state)) if state else None
        # without the entry `after`, it is another stream
        if after and not entries and standing:
            return StreamPage([], 0, True, True, standing, bool(watched))
        missed = bool(following) and entries[0].id > max(after, 1) and following[0].id > after + 1
        cursor = following[-1].id if following else after
        return StreamPage(following, cursor, missed, len(following) == count, standing, bool(watched))

    # the state first: of a job that has ended, the entries are complete
    commands = [
        ("HMGET", keys.job(base, job_id), "state", "watched"),
        ("XRANGE", keys.stream(base, job_id), after or "-", "+", "COUNT", count + 1),
    ]
    return together(commands, read)


def newest_entry(base: str, job_id: str) -> Call[int]:
    """Return the number of a stream's last entry; 0 if it is empty."""

    def read(rows: Sequence[Any] | None) -> int:
        return _entry(rows[0]).id if rows else 0

    return Call((("XREVRANGE", keys.stream(base, job_id), "+", "-", "COUNT", 1),), read)


def _entry(row: Any) -> StreamEntry:
    ((attempt, chunk),) = pairs(row[1]).items()
    return StreamEntry(int(shown(row[0]).partition("-")[0]), int(attempt), chunk)
