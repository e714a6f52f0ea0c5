"""One request of an ASGI server: its body, and the response."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from sublet_functions.http.request import quote_path
from sublet_functions.http.response import DISCARD_SECONDS, Response, StreamShutdown

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ROUNDS = 8
"""So many rounds of the event loop a claim's response waits for the server to report a disconnect."""
SMALL = 64 * 1024
"""Before the end of a claim's response of more bytes, the client's connection is checked again."""
AHEAD = 64 * 1024
"""While so many bytes of a body are unread, no more are received."""


class RequestStream:
    """The body of a request, received a little ahead of its reader. The future `disconnected` is done when the
    client has disconnected.

    A server reports that only after the body. So an unread body is received, too, and discarded after
    `seconds` with a full buffer.
    """

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._seconds = seconds
        self._held = bytearray()
        self._arrived = asyncio.Event()
        self._space = asyncio.Event()
        self._complete = False
        self._unwanted = False
        self._receiving: asyncio.Task[None] | None = None
        self.disconnected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.responding = False
        self.served = False
        """Whether the response's last piece is being sent: servers then report any client as disconnected."""

    def start(self) -> None:
        """Begin to receive the body, once."""
        self._receiving = self._receiving or asyncio.create_task(self._receive_all())

    async def _receive_all(self) -> None:
        try:
            while (message := await self._receive())["type"] == "http.request":
                if self._complete:
                    return  # a server that repeats the body's end does not report disconnects
                await self._keep(message.get("body", b""), message.get("more_body", False))
        except Exception as error:  # noqa: BLE001  the server's own: nothing more will arrive
            log.warning("a client counts as disconnected: the ASGI server raised %s", type(error).__name__)
        if not self.disconnected.done():
            self.disconnected.set_result(None)

    async def _keep(self, piece: bytes, more: bool) -> None:
        self._complete = not more
        if not self._unwanted:
            self._held += piece
        self._arrived.set()
        if more and len(self._held) >= AHEAD:
            self._space.clear()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._space.wait()
            except TimeoutError:
                self.discard()

    def discard(self) -> None:
        """Discard the bytes received so far, and all later ones."""
        self._unwanted = True
        self._held.clear()
        self._space.set()

    def is_eof(self) -> bool:
        """Whether the last byte has arrived, and none was discarded."""
        return self._complete and not self._unwanted

    def read_nowait(self, n: int = -1) -> bytes:
        """Return all arrived bytes, whatever `n`."""
        piece = bytes(self._held)
        self._held.clear()
        self._space.set()
        return piece

    async def readany(self) -> bytes:
        """Wait for the next bytes and return them; empty at the end. Raises OSError if the body was discarded."""
        while not self._held and not self._complete and not self._unwanted:
            self._arrived.clear()
            await self._arrived.wait()
        if self._unwanted:
            raise ConnectionAbortedError("the body was discarded because it was not read in time")
        return self.read_nowait()

    def close(self) -> None:
        """Stop receiving, and cancel `disconnected`."""
        if self._receiving:
            self._receiving.cancel()
        self.disconnected.cancel()


class ResponseSender:
    """Sends one response to an ASGI server."""

    def __init__(
        self, response: Response, is_head: bool, client: RequestStream, send: Send, seconds: float
    ) -> None:
        self._response = response
        self._is_head = is_head
        self._client = client
        self._send = send
        self._seconds = seconds

    async def send(self, shutdown: StreamShutdown) -> None:
        """Send the response; `shutdown` ends its stream, unless that is finite. Raises OSError if the client
        reads nothing for `seconds` or, in a claim, has disconnected.
        """
        response = self._response
        if isinstance(response.body, bytes):
            await self._send_whole(response.body)
        else:
            await self._send_stream(response.body, StreamShutdown() if response.finite else shutdown)

    async def _send_whole(self, body: bytes) -> None:
        confirm = self._response.on_unsent is not None
        if confirm:
            await self._check_connected()
        has_length = not (self._is_head and not body) and self._response.status not in (204, 304)
        await self._begin({"Content-Length": str(len(body))} if has_length else {})
        if confirm and len(body) > SMALL:
            # the send of an empty piece returns when the client has most of the body
            await self._piece(body)
            await self._piece(b"")
            await self._check_connected()
            body = b""
        await self._finish(body)

    async def _send_stream(self, pieces: AsyncIterator[bytes], shutdown: StreamShutdown) -> None:
        end = asyncio.timeout(0 if shutdown.stopped else None)
        try:
            await self._begin({})
            try:
                async with end:
                    shutdown.open.add(end)
                    async for piece in pieces:
                        if piece:
                            await self._piece(piece)
            except TimeoutError:
                if not end.expired():
                    raise
            finally:
                shutdown.open.discard(end)
            await self._finish(b"")
        finally:
            await self._response.close()

    async def _begin(self, more: dict[str, str]) -> None:
        pairs = {**self._response.headers, **more}.items()
        for name, value in pairs:
            if any(char in "\r\n\0" for char in value):
                raise ValueError(f"the value of the response header {name} contains a line break or NUL")
        self._client.responding = True
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs
        ]
        await self._send_message(
            {"type": "http.response.start", "status": self._response.status, "headers": headers}
        )

    async def _piece(self, piece: bytes) -> None:
        await self._send_message({"type": "http.response.body", "body": piece, "more_body": True})

    async def _finish(self, rest: bytes) -> None:
        self._client.served = True
        await self._send_message({"type": "http.response.body", "body": rest, "more_body": False})

    async def _send_message(self, message: Message) -> None:
        async with asyncio.timeout(self._seconds):  # TimeoutError is an OSError
            await self._send(message)

    async def _check_connected(self) -> None:
        self._client.start()
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        if self._client.disconnected.done():
            raise ConnectionResetError("the client has disconnected")


async def dismiss(send: Send) -> None:
    """Send an empty 503 to a disconnected client: some middleware reports a missing response as an error."""
    with contextlib.suppress(Exception):  # the server's own
        async with asyncio.timeout(DISCARD_SECONDS):
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def target_of(scope: Message) -> tuple[str, str] | None:
    """Return path (without that of a mount) and query, percent-encoded; None for neither a path nor a URL."""
    raw = scope.get("raw_path")
    if raw is None:
        raw = quote_path(scope["path"].encode("utf-8", "replace")).encode()
    path = raw.decode("utf-8", "surrogateescape").partition("?")[0]
    query = (scope.get("query_string") or b"").decode("utf-8", "surrogateescape")
    path, _, query = f"{path}?{query}".partition("#")[0].partition("?")
    path = _without_prefix(path, scope.get("root_path", ""))
    if path.startswith("/"):
        return path, query
    try:
        parts = urlsplit(path)  # an absolute URL, from a proxy
    except ValueError:
        return None
    return (parts.path or "/", query) if parts.scheme in ("http", "https") and parts.netloc else None


def prefix_of(scope: Message) -> str:
    """Return the percent-encoded path at which the application is mounted; empty at the root."""
    return quote_path(str(scope.get("root_path", "")).rstrip("/").encode("utf-8", "surrogateescape"))


def _without_prefix(path: str, root: str) -> str:
    rest = path.encode("utf-8", "surrogateescape")
    for byte in root.rstrip("/").encode("utf-8", "surrogateescape"):
        if rest[:1] == b"%" and rest[1:3].lower() == b"%02x" % byte:
            rest = rest[3:]
        elif rest[:1] == bytes([byte]):
            rest = rest[1:]
        else:
            return path
    return rest.decode("utf-8", "surrogateescape") or "/" if rest[:1] in (b"/", b"") else path
