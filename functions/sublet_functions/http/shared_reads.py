"""Answers that clients share: one read of Redis for all who ask the same at about the same time.

A client asks for it with the header `Sublet-Shared`; all others get an answer that was read for them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sublet.errors import Invalid
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response

HEADER = "Sublet-Shared"
SECONDS_MAX = 60.0
"""Oldest answer that a client can ask for, in seconds. Then it is forgotten."""
READS_A_SECOND = 20
"""For clients that accept it, an answer is shared for so long that it costs Redis at most so many commands a second."""
BODY_MAX = 4 * 1024 * 1024
"""Most bytes of an answer that is kept."""
BYTES_MAX = 4 * BODY_MAX
"""Most bytes of all answers that are kept."""
ANSWERS_MAX = 500

_SECONDS = r"(\d{1,2}(?:\.\d{1,3})?)"
_VALUE = re.compile(rf"{_SECONDS}(?:, ?{_SECONDS})?")
_RULE = (
    f"use seconds from 0 to {SECONDS_MAX:.0f}, with at most three decimals, and after a comma those for an expensive answer, not "
    "fewer: `1` or `1, 15`"
)


class Patience(NamedTuple):
    """How old an answer may be, in seconds."""

    seconds: float
    costly: float
    """The same for one that took many reads."""

    @classmethod
    def parse(cls, text: str) -> Patience:
        """Parse the header. Raises Problem if it is malformed."""
        found = _VALUE.fullmatch(text.strip())
        seconds = float(found[1]) if found else -1.0
        costly = float(found[2]) if found and found[2] else seconds
        with invalid_at("header", HEADER):
            if not 0 <= seconds <= costly <= SECONDS_MAX:
                raise Invalid(f"{HEADER}: {_RULE}")
        return cls(seconds, costly)


@dataclass(slots=True)
class _Read:
    began: float
    task: asyncio.Task[Response]
    reads: int = 0
    size: int = 0

    def serves(self, patience: Patience, now: float) -> bool:
        """Whether its answer is, or will be, new enough."""
        most = max(patience.seconds, min(patience.costly, self.reads / READS_A_SECOND))
        return now - self.began <= most and self.task.get_loop() is asyncio.get_running_loop()


@dataclass
class SharedReads:
    """The answers of the last seconds, bounded in number and bytes."""

    clock: Callable[[], float] = time.monotonic
    _reads: dict[Hashable, _Read] = field(default_factory=dict, init=False)
    _running: set[asyncio.Task[Response]] = field(default_factory=set, init=False)

    async def answer(
        self, key: Hashable, patience: Patience, read: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the answer to `key`, with its age: one that is new enough, or that `read` gives.

        Raises what `read` raises, in all clients that wait for it; an error is not kept. A client that leaves
        does not end the read of the others.
        """
        now = self.clock()
        one = self._reads.get(key)
        if one is None or not one.serves(patience, now):
            one = self._begin(key, now, read)
        response = await asyncio.shield(one.task)
        age = int(max(0.0, now - one.began))
        return replace(response, headers={**response.headers, "Age": str(age)})

    def _begin(self, key: Hashable, now: float, read: Callable[[], Awaitable[Response]]) -> _Read:
        async def run() -> Response:
            return await read()

        one = _Read(now, asyncio.get_running_loop().create_task(run()))
        self._reads.pop(key, None)
        self._reads[key] = one
        self._running.add(one.task)
        one.task.add_done_callback(lambda task: self._finish(key, one, task))
        return one

    def _finish(self, key: Hashable, one: _Read, task: asyncio.Task[Response]) -> None:
        self._running.discard(task)
        failed = task.cancelled() or task.exception() is not None
        if not failed:
            found = task.result()
            one.size, one.reads = len(found.body) if isinstance(found.body, bytes) else 0, found.reads
            failed = one.size > BODY_MAX or found.status != 200
        if self._reads.get(key) is one and failed:
            del self._reads[key]
        self._forget()
        task.get_loop().call_later(SECONDS_MAX, self._forget)

    def _forget(self) -> None:
        """Drop the oldest answers, and those that are too old for every client."""
        before, total = self.clock() - SECONDS_MAX, sum(one.size for one in self._reads.values())
        for key, one in list(self._reads.items()):
            if one.began > before and total <= BYTES_MAX and len(self._reads) <= ANSWERS_MAX:
                return
            del self._reads[key]
            total -= one.size
