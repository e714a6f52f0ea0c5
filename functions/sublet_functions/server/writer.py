"""Responses on the socket, no faster than the client reads them."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from sublet_functions.http.response import Response, StreamShutdown

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BUFFER_MAX = 64 * 1024
"""If more bytes than this are unsent, a writer waits until most are sent."""
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
"""macOS: POLLHUP, Linux: POLLRDHUP."""


def encode_head(response: Response, *, keep: bool, length: int | None = None, chunked: bool = False) -> bytes:
    """Encode status line and headers as bytes. `length`: bytes of the body, if known. Raises ValueError for a
    line break or NUL in them.
    """
    lines = [
        f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, '')}",
        *map(": ".join, response.headers.items()),
    ]
    if length is not None and response.status not in (204, 304):
        lines.append(f"Content-Length: {length}")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    lines.append(f"Date: {_date(int(time.time()))}")
    if "Connection" not in response.headers:
        lines.append("Connection: keep-alive" if keep else "Connection: close")
    text = "\r\n".join(lines)
    if not text.count("\r") == text.count("\n") == len(lines) - 1 or "\0" in text:
        raise ValueError("a header of the response contains a line break or NUL")
    return text.encode("latin-1", "replace") + b"\r\n\r\n"


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


def encode_response(response: Response, body: bytes, *, keep: bool, is_head: bool = False) -> bytes:
    """Encode a complete response. For HEAD it has no body, and Content-Length only if `body` is not empty."""
    if is_head:
        return encode_head(response, keep=keep, length=len(body) or None)
    return encode_head(response, keep=keep, length=len(body)) + body


def has_disconnected(transport: asyncio.Transport) -> bool:
    """Whether the client has closed its end: the kernel knows it before asyncio."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _CLOSED)
    return bool(poll.poll(0))


class ResponseWriter:
    """Writes responses to one connection, and waits while the client does not read."""

    def __init__(
        self, transport: asyncio.Transport | None, drain: Callable[[], Awaitable[None]], seconds: float
    ) -> None:
        self._transport = transport
        self._drain = drain
        self._seconds = seconds

    async def write(self, data: bytes, *, confirm: bool = False) -> None:
        """Send bytes. Raises OSError if the client has disconnected, or lets this wait for `seconds`. With
        `confirm`, wait until the kernel has all bytes.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        if confirm:
            if has_disconnected(transport):
                raise ConnectionResetError("the client has disconnected")
            transport.set_write_buffer_limits(high=0)
        transport.write(data)
        if transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        if transport.get_write_buffer_size() > (0 if confirm else BUFFER_MAX):
            async with asyncio.timeout(self._seconds):  # TimeoutError is an OSError
                await self._drain()
        if confirm:
            transport.set_write_buffer_limits()

    async def stream(self, response: Response, shutdown: StreamShutdown, *, chunked: bool) -> None:
        """Send a body's pieces until it ends or `shutdown` stops it; close the response. `chunked`: with HTTP's chunked
        encoding. Raises OSError as `write` does.
        """
        assert not isinstance(response.body, bytes)
        end = asyncio.timeout(0 if shutdown.stopped else None)
        try:
            try:
                async with end:
                    shutdown.open.add(end)
                    await self._pieces(response.body, chunked)
            except TimeoutError:
                if not end.expired():
                    raise
            finally:
                shutdown.open.discard(end)
            if chunked:
                await self.write(b"0\r\n\r\n")
        finally:
            await response.close()

    async def _pieces(self, pieces: AsyncIterator[bytes], chunked: bool) -> None:
        async for piece in pieces:
            if piece:  # an empty chunk ends the body
                await self.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)

    def abort(self) -> None:
        """Close the connection at once, so that the client does not mistake a part of a response for the whole."""
        if self._transport is not None:
            self._transport.abort()
