"""Answers on the wire: their head as bytes, and a body that goes out no faster than the caller takes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from functions.call import Reply

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_JOINED = 64 * 1024
"""Bytes up to which head and body go out in one piece."""


def head(reply: Reply, *, keep: bool, length: int | None, chunked: bool = False) -> bytes:
    """The first lines of an answer. `length` is that of its body; None where that is not told."""
    lines = [f"HTTP/1.1 {reply.status} {_PHRASES.get(reply.status, '')}", *map(": ".join, reply.headers.items())]
    if length is not None and reply.status >= 200 and reply.status not in (204, 304):
        lines.append(f"Content-Length: {length}")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    lines.append(f"Date: {_date(int(time.time()))}")
    lines.append(f"Connection: {'keep-alive' if keep else 'close'}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header of the answer has a line break in it")
    return text.encode("latin-1", "replace") + b"\r\n\r\n"


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


class Pace:
    """Sends bytes on a connection, and waits while the caller does not take them."""

    def __init__(self, transport: asyncio.Transport, drain: Drain, seconds: float) -> None:
        self._transport, self._drain, self._seconds = transport, drain, seconds

    async def send(self, reply: Reply, body: bytes, *, keep: bool, bare: bool) -> None:
        """Send a whole answer; `bare` leaves its body out.

        Raises OSError when the caller has gone, or takes nothing for too long. An answer that must not be lost (`unsent`) is
        followed until the system has all of it; of another, some may still be on its way out.
        """
        first = head(reply, keep=keep, length=None if bare and not body else len(body))
        ...
