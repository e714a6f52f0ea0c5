"""One request of an ASGI server: who sent it, what it asks for, and the answer on its way back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote, urlsplit

from sublet_functions.api.request import Reply
from sublet_functions.server.writer import LAST_RESORT, Ends, close

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TURNS = 8
"""Turns of the loop in which a server that could know that its caller has gone hears of it, and says so."""
SMALL = 64 * 1024
"""Bytes of a body that goes out in one piece."""
AHEAD = 64 * 1024
"""Bytes of a body that are taken in before anybody reads them."""
_PLAIN = "/:@!$&'()*+,;=~"
"""What stays as it is in a path."""


class Caller:
    """Whoever sent a request: the body as it comes, a little ahead of its reader, and whether somebody is still there.

    A server tells of who has gone only after the body, so that goes on being taken in where nobody reads it: what is there of it
    when it is not wanted any more, or `seconds` after there was no room for more, is thrown away, and so is the rest.
    """

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive, self._seconds = receive, seconds
        self._held = bytearray()
        self._come, self._room = asyncio.Event(), asyncio.Event()
        self._whole = self._unwanted = False
        self._listening: asyncio.Task[None] | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the caller has hung up."""
        self.told = False
        """Has the answer begun?"""
        self.served = False
        """Is the last piece of the answer on its way? Servers say that a caller is gone who has got everything, too."""

    def listen(self) -> None:
        """Take in what comes: for one who waits to be told (`Expect: 100-continue`), that is the word to send the body."""
        self._listening = self._listening or asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            while (message := await self._receive())["type"] == "http.request":
                if self._whole:
                    return  # a server that says the same over and over will not tell of who has gone
                await self._keep(message.get("body", b""), message.get("more_body", False))
        except Exception as error:  # noqa: BLE001  the server's own: whatever it is, nothing more will come
            log.warning("a caller is lost, for the server raised %s", type(error).__name__)
        if not self.gone.done():
            self.gone.set_result(None)

    async def _keep(self, piece: bytes, more: bool) -> None:
        """Hold a piece for its reader; then wait until there is room for the next one."""
        self._whole = not more
        if not self._unwanted:
            self._held += piece
        self._come.set()
        if more and len(self._held) >= AHEAD:
            self._room.clear()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._room.wait()
            except TimeoutError:
                self.spurn()

    def spurn(self) -> None:
        """Throw away what is there of the body, and what may come: nobody will read it."""
        self._unwanted = True
        self._held.clear()
        self._room.set()

    def is_eof(self) -> bool:
        """Has the last byte come?"""
        return self._whole and not self._unwanted

    def read_nowait(self, n: int = -1) -> bytes:
        """What is here: all of it, whatever `n` is."""
        piece = bytes(self._held)
        self._held.clear()
        self._room.set()
        return piece

    async def readany(self) -> bytes:
        """What comes next; empty at the end. Raises OSError when it has been thrown away."""
        while not self._held and not self._whole and not self._unwanted:
            self._come.clear()
            await self._come.wait()
        if self._unwanted:
            raise ConnectionAbortedError("nobody read this body for too long")
        return self.read_nowait()

    def forget(self) -> None:
        """Listen no more."""
        if self._listening:
            self._listening.cancel()
        self.gone.cancel()


class Answer:
    """One answer on its way to whoever asked."""

    def __init__(self, reply: Reply, bare: bool, caller: Caller, send: Send, seconds: float) -> None:
        self._reply, self._bare, self._caller, self._send, self._seconds = reply, bare, caller, send, seconds

    async def send(self, ends: Ends) -> None:
        """Send it. Raises OSError when the caller has gone, or takes nothing for too long."""
        reply = self._reply
        if isinstance(reply.body, bytes):
            await self._whole(reply.body)
        else:
            await self._stream(reply.body, Ends() if reply.finishes else ends)

    async def _whole(self, body: bytes) -> None:
        precious = self._reply.unsent is not None
        if precious:
            await self._look()
        known = not (self._bare and not body) and self._reply.status not in (204, 304)
        await self._begin({"Content-Length": str(len(body))} if known else {})
        if (
            precious and len(body) > SMALL
        ):  # the empty last piece waits until the caller has taken most of the others
            await self._piece(body)
            await self._piece(b"")
            await self._look()
            body = b""
        await self._finish(body)

    async def _stream(self, pieces: AsyncIterator[bytes], ends: Ends) -> None:
        end = asyncio.timeout(0 if ends.over else None)
        try:
            await self._begin({})
            try:
                async with end:
                    ends.open.add(end)
                    async for piece in pieces:
                        if piece:
                            await self._piece(piece)
            except TimeoutError:
                if not end.expired():
                    raise
            finally:
                ends.open.discard(end)
            await self._finish(b"")
        finally:
            await close(pieces)

    async def _begin(self, more: dict[str, str]) -> None:
        pairs = {**self._reply.headers, **more}.items()
        if any(char in "\r\n\0" for _, value in pairs for char in value):
            raise ValueError("a header of this answer has a line break in it")
        self._caller.told = True
        coded = [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs
        ]
        await self._say({"type": "http.response.start", "status": self._reply.status, "headers": coded})

    async def _piece(self, piece: bytes) -> None:
        await self._say({"type": "http.response.body", "body": piece, "more_body": True})

    async def _finish(self, rest: bytes) -> None:
        self._caller.served = True
        await self._say({"type": "http.response.body", "body": rest, "more_body": False})

    async def _say(self, message: Message) -> None:
        async with asyncio.timeout(self._seconds):  # TimeoutError is an OSError
            await self._send(message)

    async def _look(self) -> None:
        """See whether the caller is still there, as far as the server can know. Raises OSError for one who has gone."""
        self._caller.listen()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if self._caller.gone.done():
            raise ConnectionResetError("the caller has gone")


async def dismiss(send: Send) -> None:
    """Answer, with nothing, a caller who has gone: no one hears it, but middleware takes it for a defect if there is no answer.

    Somebody who should be there against all that the server said is told to try again.
    """
    with contextlib.suppress(Exception):  # the server's own: whatever it says of a caller who has gone
        async with asyncio.timeout(LAST_RESORT):
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def target_of(scope: Message) -> tuple[str, str] | None:
    """Path and query of a request as they were sent, without the prefix of a mount; None for what is no address."""
    raw = scope.get("raw_path")
    if raw is None:
        raw = quote(scope["path"], safe=_PLAIN, errors="replace").encode()
    path = raw.decode("utf-8", "surrogateescape").partition("?")[0]
    query = (scope.get("query_string") or b"").decode("utf-8", "surrogateescape")
    path, _, query = f"{path}?{query}".partition("#")[0].partition("?")
    path = _below(path, scope.get("root_path", ""))
    if path.startswith("/"):
        return path, query
    try:
        parts = urlsplit(path)  # a proxy's request names it in full
    except ValueError:
        return None
    return (parts.path or "/", query) if parts.scheme in ("http", "https") and parts.netloc else None


def _below(path: str, root: str) -> str:
    """A path below a prefix, which is decoded, as ASGI has it; the path as it is where it does not begin so."""
    left = path.encode("utf-8", "surrogateescape")
    for byte in root.rstrip("/").encode("utf-8", "surrogateescape"):
        if left[:1] == b"%" and left[1:3].lower() == b"%02x" % byte:
            left = left[3:]
        elif left[:1] == bytes([byte]):
            left = left[1:]
        else:
            return path
    return left.decode("utf-8", "surrogateescape") or "/" if left[:1] in (b"/", b"") else path
