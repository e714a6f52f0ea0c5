"""The promises to streams: each attempt's chunks are in order, once, behind its mark; no ghost adds any."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tests.faults.simulation.request import Request, must

if TYPE_CHECKING:
    from tests.faults.simulation.invariants import Checker
    from tests.faults.simulation.server import Look

ENDED = ("completed", "dead", "cancelled")
BATCHES = (1, 2, 1)
"""The chunks in each call of an attempt."""
PAUSES = (0.3, 4.0, 11.0)
"""Seconds between two calls; the lease may end meanwhile."""


class Entry(NamedTuple):
    """An entry of a stream. An empty chunk: the attempt begins."""

    number: int
    attempt: int
    chunk: str


class Stream(NamedTuple):
    """A job's stream, and when it expires (ms)."""

    entries: tuple[Entry, ...]
    expires: int | None


def chunks(attempt: int, first: int, size: int) -> list[bytes]:
    """The chunks of a batch: each says its attempt, and its place in it."""
    return [b"%d.%d" % (attempt, n) for n in range(first, first + size)]


class Streams:
    """Checks the streams after each script."""

    def __init__(self, checker: "Checker") -> None:
        self.checker = checker

    def executed(self, request: Request, before: "Look", is_accepted: bool) -> None:
        """Check what a call has changed, and each stream as it is now."""
        look = self.checker.look
        for i, old in before.streams.items():
            is_over = old.expires is not None and old.expires <= look.now
            must(i in look.streams or is_over or i not in look.jobs, f"the stream of {i} is gone")
        for i, new in look.streams.items():
            known = before.streams[i].entries if i in before.streams else ()
            if new != before.streams.get(i):
                self.changed(request, i, known, new, is_accepted)
            state = self.checker.lives[i].state
            if state in ENDED:
                kept = look.shelves[state][i]
                must(new.expires == kept, f"the stream of {i} expires at {new.expires}, the job at {kept}")
        if request.verb == "emit" and is_accepted:
            there = look.streams[request.one["id"]].entries
            attempt = self.checker.lives[request.one["id"]].attempt
            lacks = {chunk for (chunk,) in request.groups} - {
                one.chunk for one in there if one.attempt == attempt
            }
            must(not lacks, f"{request} was accepted, and {lacks} is not there")

    def changed(
        self, request: Request, i: str, known: Sequence[Entry], new: Stream, is_accepted: bool
    ) -> None:
        """Check a stream that a call has changed."""
        must(new.entries[: len(known)] == tuple(known), f"{request} changed what {i} had emitted")
        added, life = new.entries[len(known) :], self.checker.lives[i]
        if not added:
            return
        must(
            is_accepted and request.verb == "emit" and request.one["id"] == i,
            f"{request} added {added} to {i}",
        )
        must(life.state == "running" and life.token == request.one["token"], f"a ghost added {added} to {i}")
        must(new.expires is None, f"the stream of {i}, which runs, expires")
        attempts = sorted({one.attempt for one in new.entries})
        wanted = [(n, chunk) for n in attempts for chunk in self.of_attempt(n, new.entries)]
        must(
            [(one.attempt, one.chunk) for one in new.entries] == wanted
            and [one.number for one in new.entries] == list(range(1, len(new.entries) + 1))
            and attempts[-1] == life.attempt,
            f"{request} left {new.entries} in the stream of {i}",
        )

    @staticmethod
    def of_attempt(attempt: int, entries: Sequence[Entry]) -> list[str]:
        """What an attempt with so many entries must have emitted: its mark, and its chunks from the first."""
        size = sum(one.attempt == attempt for one in entries) - 1
        return ["", *(chunk.decode() for chunk in chunks(attempt, 0, size))]
