"""What one process lets in: how large, how slow and how many requests may be. Each limit has its own words for who is over it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from sublet_functions.api.request import Read
from sublet_functions.api.response import Problem

log = logging.getLogger(__name__)

LARGE = 8 * 1024
"""Bytes from which on a body has to wait for its turn: smaller ones are understood within a millisecond."""
WAITING = 64 * 1024 * 1024
"""Bytes of bodies that may wait in one line."""
ALL_WAITING = 256 * 1024 * 1024
"""Bytes of bodies that may wait in all lines together."""
TURN_SECONDS = 10.0
"""How long a body waits for its turn."""
TRIFLE = 0.001
"""Seconds of work up to which a large body is as good as a small one: the next one need not wait for the loop's next round."""
CHEAP = 0.01
"""Seconds of work from which on others have time between two bodies of one line: after less, one round of the loop is enough."""
GLANCE = 0.002
"""Seconds between two looks at whether others still need that time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes before it says no."""

    connections: int = 4096
    """At a time. Each further one is answered 503 and closed."""
    line: int = 8192
    """Bytes of the address in a request's first line."""
    field: int = 8190
    """Bytes of each header; another number than `line`, for aiohttp tells them apart by nothing else."""
    headers: int = 100
    """Header lines of a request."""
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 10.0
    """For the whole of a body."""
    idle_seconds: float = 75.0
    """Between two requests on a connection: longer than the 60 s after which gateways let go of theirs."""
    send_seconds: float = 30.0
    """For the caller to take an answer, or a piece of one that streams."""
    linger_seconds: float = 1.0
    """How long a connection stays half open after its last answer: one that is closed at once may take the answer with it."""
    held: int = 256 * 1024 * 1024
    """Bytes of unfinished bodies that all connections together may hold."""


class Payload(Protocol):
    """A body on its way in: what is used of aiohttp's stream."""

    def is_eof(self) -> bool:
        """Has the last byte come?"""
        ...

    def read_nowait(self, n: int = -1) -> bytes:
        """What is here."""
        ...

    async def readany(self) -> bytes:
        """What comes next; empty at the end."""
        ...


class Bodies:
    """Reads the bodies of all requests of a process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    async def read(
        self, payload: Payload, headers: Mapping[str, str], begin: Callable[[], None], most: int
    ) -> bytes:
        """The whole body. `begin` is called when the caller waits to be told to send it.

        Raises Problem for one that is too large, too slow or cut off, and when all connections together hold too much.
        """
        if payload.is_eof():
            whole = payload.read_nowait()
            _check(len(whole), most)
            return whole
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > most:
            raise Problem("too-large", f"the body has {announced[:20]} bytes: at most {most:,}")
        if headers.get("expect", "").lower() == "100-continue":
            begin()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._read(payload, most)
        except TimeoutError:
            raise Problem("timeout", f"the body was not here after {self._limits.body_seconds:g} s") from None

    async def _read(self, payload: Payload, most: int) -> bytes:
        body = bytearray()
        try:
            while chunk := await _next(payload):
                self._held += len(chunk)
                body += chunk
                _check(len(body), most)
                if self._held > self._limits.held:
                    raise Problem("busy", "too many large bodies are on their way at this moment")
            return bytes(body)
        finally:
            self._held -= len(body)


async def _next(payload: Payload) -> bytes:
    try:
        return await payload.readany()
    except Exception as error:  # noqa: BLE001  aiohttp's own, for a chunk that is none or a connection that broke
        log.debug("a body broke off: %s", type(error).__name__)
        raise Problem("bad-request", "the body broke off, or its chunks cannot be understood") from None


def _check(size: int, most: int) -> None:
    if size > most:
        raise Problem("too-large", f"the body has more than {most:,} bytes")


class Turns:
    """To understand a large body keeps everybody waiting, up to half a second. So those of one line come one after the other.

    A line is a token's name, or one kind of request in that name; whoever needs no token is in one line with all who need none.
    Between two bodies that are no trifles the loop goes round. After one that took long, others have the processor for as long as
    they use it, but no longer than that took. So a flood in one name costs each request of another one body's time, or two if
    Redis is slow to answer it; and who is alone loses next to nothing.
    """

    def __init__(self) -> None:
        self._lines: WeakValueDictionary[str, _Line] = WeakValueDictionary()
        self._waiting = 0

    def of(self, name: str, read: Read) -> Turn:
        """A request's body, read by `read`, that waits for its turn in this line."""
        return Turn(self, name, read)

    async def wait(self, name: str, size: int) -> _Line:
        """Come back when it is a body's turn, with the line that is to go on after it.

        Raises Problem when too much waits already, and for a turn that does not come.
        """
        line = self._lines.get(name) or self._lines.setdefault(name, _Line())
        if line.waiting and line.waiting + size > WAITING:
            raise Problem("busy", "too many large bodies of this token wait for their turn")
        if self._waiting + size > ALL_WAITING:
            raise Problem("busy", "too many large bodies wait for their turn")
        line.waiting += size
        self._waiting += size
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await line.turn.acquire()
        except TimeoutError:
            raise Problem(
                "busy", f"no turn within {TURN_SECONDS:g} s: this token sends many large bodies"
            ) from None
        finally:
            line.waiting -= size
            self._waiting -= size
        return line


class Turn:
    """`with` it, a body is read, and understood at once: at its end, whoever is next in the line may go on."""

    __slots__ = ("_began", "_line", "_name", "_read", "_turns")

    def __init__(self, turns: Turns, name: str, read: Read) -> None:
        self._turns, self._name, self._read = turns, name, read
        self._line: _Line | None = None
        self._began = 0.0

    def __enter__(self) -> Read:
        return self.read

    async def read(self, most: int) -> bytes:
        """The whole body, when it may be understood. Raises Problem: see `Read`, and when its turn does not come."""
        raw = await self._read(most)
        if len(raw) >= LARGE and self._line is None:
            self._line = await self._turns.wait(self._name, len(raw))
            self._began = time.thread_time()
        return raw

    def __exit__(self, *_: object) -> None:
        if self._line:
            self._line.leave(
                time.thread_time() - self._began
            )  # the processor's time: others on it are not our callers


class _Line:
    """Those who wait in one line, the first one first. It is gone when nobody does."""

    __slots__ = ("__weakref__", "turn", "waiting")

    def __init__(self) -> None:
        self.turn, self.waiting = asyncio.Lock(), 0

    def leave(self, took: float) -> None:
        """Let the next one go on: at once, in the loop's next round, or, after long work, when others had their time."""
        if took < TRIFLE:
            self.turn.release()
        else:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._rest, loop, took)  # by then this body's own handler waits for Redis

    def _rest(self, loop: asyncio.AbstractEventLoop, left: float) -> None:
        if left < CHEAP:
            self.turn.release()
        else:
            loop.call_later(GLANCE, self._look, loop, time.thread_time(), left)

    def _look(self, loop: asyncio.AbstractEventLoop, since: float, left: float) -> None:
        """Pass the turn on, if others have used the processor for long enough, or hardly at all since the last look."""
        used = time.thread_time() - since
        if used >= left or used < GLANCE / 2:
            self.turn.release()
        else:
            loop.call_later(GLANCE, self._look, loop, since + used, left - used)
