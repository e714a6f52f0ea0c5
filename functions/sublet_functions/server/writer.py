"""Answers on the wire: their head as bytes, and a body that goes out no faster than the caller takes it."""

from __future__ import annotations

import asyncio
import logging
import select
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from sublet_functions.api.request import Reply

log = logging.getLogger(__name__)

LAST_RESORT = 2.0
"""Seconds that what was cut short may take to clean up."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_HIGH = 64 * 1024
"""Bytes that may wait to go out before the next ones are made; up to so many, head and body go out in one piece."""
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""What is asked of a connection: macOS and others say POLLHUP for what Linux calls POLLRDHUP."""


def head(reply: Reply, *, keep: bool, length: int | None = None, chunked: bool = False) -> bytes:
    """The first lines of an answer. `length` is that of its body; None where that is not told."""
    lines = [
        f"HTTP/1.1 {reply.status} {_PHRASES.get(reply.status, '')}",
        *map(": ".join, reply.headers.items()),
    ]
    if length is not None and reply.status not in (204, 304):
        lines.append(f"Content-Length: {length}")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    lines.append(f"Date: {_date(int(time.time()))}")
    if "Connection" not in reply.headers:
        lines.append("Connection: keep-alive" if keep else "Connection: close")
    text = "\r\n".join(lines)
    if not text.count("\r") == text.count("\n") == len(lines) - 1 or "\0" in text:
        raise ValueError("a header of this answer has a line break in it")
    return text.encode("latin-1", "replace") + b"\r\n\r\n"


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def whole(reply: Reply, body: bytes, *, keep: bool, bare: bool = False) -> bytes:
    """A complete answer. A `bare` one, to HEAD, has no body, and does not tell the length of one that was never made."""
    if bare:
        return head(reply, keep=keep, length=len(body) or None)
    return head(reply, keep=keep, length=len(body)) + body


def has_left(transport: asyncio.Transport) -> bool:
    """Has the caller closed its end? The system knows before we have read of it, and still takes what is written then."""
    one = transport.get_extra_info("socket")
    if one is None:
        return False
    look = select.poll()
    look.register(one.fileno(), _CLOSED)
    return bool(look.poll(0))


class Ends:
    """Ends all streams, when the time has come."""

    def __init__(self) -> None:
        self.open: set[asyncio.Timeout] = set()
        self.over = False

    def come(self) -> None:
        """Have all streams end now."""
        self.over = True
        for end in self.open:
            end.reschedule(asyncio.get_running_loop().time())


class Outlet:
    """Where one answer goes out. `drain` waits until the connection takes more."""

    def __init__(
        self, transport: asyncio.Transport | None, drain: Callable[[], Awaitable[None]], seconds: float
    ) -> None:
        self._transport, self._drain, self._seconds = transport, drain, seconds

    async def write(self, data: bytes, *, surely: bool = False) -> None:
        """Send bytes. Raises OSError when the caller has gone, or takes nothing for too long.

        `surely` waits until the system has them all, and so knows of a caller who went meanwhile; otherwise the end of them may
        still be on its way out.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the caller has gone")
        if surely:
            if has_left(transport):
                raise ConnectionResetError("the caller has gone")
            transport.set_write_buffer_limits(high=0)
        transport.write(data)
        if transport.is_closing():
            raise ConnectionResetError("the caller has gone")
        if transport.get_write_buffer_size() > (0 if surely else _HIGH):
            async with asyncio.timeout(self._seconds):  # TimeoutError is an OSError
                await self._drain()
        if surely:
            transport.set_write_buffer_limits()

    async def stream(self, pieces: AsyncIterator[bytes], ends: Ends, *, chunked: bool) -> None:
        """Send pieces as they come, until there are no more, or until the end of all streams. Raises OSError as `write`."""
        end = asyncio.timeout(0 if ends.over else None)
        try:
            try:
                async with end:
                    ends.open.add(end)
                    await self._pieces(pieces, chunked)
            except TimeoutError:
                if not end.expired():
                    raise
            finally:
                ends.open.discard(end)
            if chunked:
                await self.write(b"0\r\n\r\n")
        finally:
            await close(pieces)

    async def _pieces(self, pieces: AsyncIterator[bytes], chunked: bool) -> None:
        async for piece in pieces:
            if piece:  # an empty chunk would be the last one
                await self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)

    def abort(self) -> None:
        """Drop the connection: what was sent of an answer must not be taken for all of it."""
        if self._transport is not None:
            self._transport.abort()


async def close(body: bytes | AsyncIterator[bytes]) -> None:
    """Have a body that streams clean up after itself."""
    if isinstance(body, AsyncGenerator):
        await body.aclose()


async def undo(reply: Reply) -> None:
    """Give back, in some seconds at most, what an answer holds that nobody took; and have what makes its pieces clean up."""
    try:
        async with asyncio.timeout(LAST_RESORT):
            await close(reply.body)
            if reply.unsent:
                await reply.unsent()
    except Exception as error:  # noqa: BLE001  whatever it is: the leases end by themselves
        log.warning("what an answer held that nobody took was not given back: %s", type(error).__name__)
