"""Answers that clients share, if their header `Sublet-Shared` allows it: one read of Redis for all that
ask the same at about the same time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from sublet.errors import Invalid
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response

HEADER = "Sublet-Shared"
SECONDS_MAX = 60.0
"""The greatest age (seconds) of an answer that a client can accept; older ones are dropped."""
PAYLOAD_SECONDS = 5.0
"""The greatest age (seconds) of an answer with payloads, since a job may be erased."""
READS_A_SECOND = 30
"""Answers that take many Redis commands are shared for longer, so that all take about so many a second."""
BODY_MAX = 4 * 1024 * 1024
BYTES_MAX = 4 * BODY_MAX
ANSWERS_MAX = 500

T = TypeVar("T")

_SECONDS = r"(\d{1,2}(?:\.\d{1,3})?)"
_VALUE = re.compile(rf"{_SECONDS}(?:, ?{_SECONDS})?")
_RULE = (
    f"use seconds from 0 to {SECONDS_MAX:.0f}, with at most three decimals, and after a comma those for an expensive answer, not "
    "fewer: `1` or `1, 15`"
)


class Patience(NamedTuple):
    """How old an answer a client accepts, in seconds."""

    seconds: float
    costly: float
    """The same for answers that take many Redis commands; not less than `seconds`."""

    @classmethod
    def parse(cls, text: str) -> Patience:
        """Parse the header `Sublet-Shared`. Raises Problem if it is malformed."""
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
    task: asyncio.Task[Any]
    life: float
    reads: int = 0
    size: int = 0


@dataclass
class SharedReads:
    """The answers of the last seconds: at most ANSWERS_MAX, of BYTES_MAX in all."""

    clock: Callable[[], float] = time.monotonic
    _reads: dict[Hashable, _Read] = field(default_factory=dict, init=False)
    _running: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    async def answer(
        self,
        key: Hashable,
        patience: Patience,
        read: Callable[[], Awaitable[Response]],
        life: float = SECONDS_MAX,
    ) -> Response:
        """Return the answer to `key` with the header `Age`: one that is new enough for the client or, by
        calling `read`, a new one, which is kept for at most `life` seconds.

        Raises what `read` raises, for all clients that wait for it. Errors, statuses other than 200 and
        bodies over BODY_MAX are not kept. If a client disconnects, the read continues for the others.
        """
        now = self.clock()
        response, read_at = await self.share(key, patience, read, life)
        age = int(max(0.0, now - read_at))
        return replace(response, headers={**response.headers, "Age": str(age)})

    async def share(
        self,
        key: Hashable,
        patience: Patience,
        read: Callable[[], Awaitable[T]],
        life: float = SECONDS_MAX,
    ) -> tuple[T, float]:
        """As `answer`, but for any object with `reads`; return it, and when its read began (monotonic clock)."""
        now = self.clock()
        while True:
            one = self._reads.get(key)
            is_own = one is None or not self._serves(one, patience, now)
            if one is None or is_own:
                one = self._begin(key, now, read, life)
            found: T = await asyncio.shield(one.task)
            if is_own or self._serves(one, patience, now):  # it may have been made of an older read
                return found, one.began

    def clear(self) -> None:
        """Forget all answers. Running reads go on for the clients that wait."""
        self._reads.clear()

    def _serves(self, one: _Read, patience: Patience, now: float) -> bool:
        most = patience.seconds
        if one.reads and patience.costly > most:
            expensive = sum(other.reads > READS_A_SECOND for other in self._reads.values())
            most = max(most, min(patience.costly, one.reads * max(1, expensive) / READS_A_SECOND))
        is_here = one.task.get_loop() is asyncio.get_running_loop()
        return now - one.began <= min(most, one.life) and is_here

    def _begin(self, key: Hashable, now: float, read: Callable[[], Awaitable[Any]], life: float) -> _Read:
        async def run() -> Any:
            return await read()

        one = _Read(now, asyncio.get_running_loop().create_task(run()), life)
        self._reads.pop(key, None)
        self._reads[key] = one
        self._running.add(one.task)
        one.task.add_done_callback(lambda task: self._finish(key, one, task))
        return one

    def _finish(self, key: Hashable, one: _Read, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        failed = task.cancelled() or task.exception() is not None
        if not failed:
            found = task.result()
            one.reads = found.reads
            if isinstance(found, Response):
                one.size = len(found.body) if isinstance(found.body, bytes) else 0
                one.began = min(one.began, found.read_at)
                failed = one.size > BODY_MAX or found.status != 200
        if self._reads.get(key) is one and failed:
            del self._reads[key]
        self._forget()
        task.get_loop().call_later(one.life, self._forget)

    def _forget(self) -> None:
        now, total = self.clock(), sum(one.size for one in self._reads.values())
        for key, one in list(self._reads.items()):
            is_kept = one.began + one.life > now and total <= BYTES_MAX
            if not is_kept or len(self._reads) > ANSWERS_MAX:
                del self._reads[key]
                total -= one.size


class Sharing(NamedTuple):
    """The shared answers, and how old ones this client accepts: for handlers that share parts of their answers."""

    reads: SharedReads
    patience: Patience
