"""What one process lets in: how large, how slow and how many requests may be. Each limit has its own words for who is over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from functions.reply import Problem

log = logging.getLogger(__name__)


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

    async def read(self, payload: Payload, headers: Mapping[str, str], begin: Callable[[], None], most: int) -> bytes:
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
