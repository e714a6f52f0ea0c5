"""One caller's connection: what aiohttp's server does with it, with our limits and in our words."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from sublet_functions.api.request import Reply
from sublet_functions.api.response import Problem
from sublet_functions.api.routes import SECURITY
from sublet_functions.server.limits import Limits
from sublet_functions.server.writer import whole

log = logging.getLogger(__name__)


class Doorkeeper(Protocol):
    """Who decides which connections there may be, and knows those that are."""

    limits: Limits
    open: set[Connection]

    def has_room(self) -> bool:
        """May another caller come in?"""
        ...

    def turn_away(self, transport: asyncio.Transport) -> None:
        """Tell a caller that there is no room."""
        ...


class Connection(web.RequestHandler):
    """One caller's connection: what aiohttp does, with our limits and our words."""

    __slots__ = ("busy", "front", "head_at", "idle_at", "left", "turned_away")

    def __init__(
        self, server: web.Server, front: Doorkeeper, loop: asyncio.AbstractEventLoop, options: dict[str, Any]
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self.front = front
        self.busy = False
        """Is a request being answered?"""
        self.head_at = 0.0
        """Since when the head of a request is coming in; 0 while none is."""
        self.idle_at = time.monotonic()
        """Since when there is no request, if there is none."""
        self.turned_away = self.left = False
        """Was there no room? Has the last word been said?"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a caller in, if there is room."""
        if self.front.has_room():
            self.front.open.add(self)
            super().connection_made(transport)
            return
        self.turned_away = True
        self.front.turn_away(cast(asyncio.Transport, transport))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a caller who has gone; whoever works on an answer is cancelled."""
        if not self.turned_away:
            self.front.open.discard(self)
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what comes in, and note when a request begins."""
        if self.turned_away:
            return
        if not self.busy and not self.head_at:
            self.head_at = time.monotonic()
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001  aiohttp's parser lets some errors through that only say: this is no HTTP
            log.debug("what came is no HTTP: %s", type(error).__name__)
            self.leave(_no_http(error, self.front.limits))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What to say to what is no HTTP: not what aiohttp would."""
        self.head_at = 0.0
        if status != 400:
            log.error("a defect: %s, found by aiohttp", type(exc).__name__)
            return _Refused(refusal("internal", "this is our fault, and the server's log says more"))
        log.debug("what came is no HTTP: %s", type(exc).__name__)
        return _Refused(_no_http(exc, self.front.limits))

    def begin(self) -> None:
        """A request has come in, and is being answered."""
        self.busy, self.head_at = True, 0.0

    def finish(self) -> None:
        """It has been answered."""
        self.busy, self.idle_at = False, time.monotonic()

    def has_begun(self) -> bool:
        """Has the head of a request begun that came in behind the one before? If so, nothing more can be read here."""
        try:
            return (
                self._parser is not None and self._parser.feed_eof() is not None
            )  # the parser alone knows where it is
        except Exception as error:  # noqa: BLE001  whatever it says of half a head: there is one
            log.debug("a head broke off: %s", type(error).__name__)
            return True

    def leave(self, reply: Reply) -> None:
        """Say a last word, and let go half of the connection: what still comes in is thrown away until the caller has read it.

        Once: whoever has heard it is not told again.
        """
        self.head_at = 0.0
        if self.left:
            return
        self.left = True
        self.close()  # no request is read any more
        transport = self.transport
        if transport is not None:
            transport.write(last(reply))
            if transport.can_write_eof():
                transport.write_eof()
            asyncio.get_running_loop().call_later(self.front.limits.linger_seconds, self.force_close)


def _no_http(error: BaseException | None, limits: Limits) -> Reply:
    """The answer to what cannot be read as a request."""
    args: tuple[Any, ...] = error.args if error else ()
    if isinstance(error, LineTooLong):
        if args[1:2] == (limits.line,):
            return refusal("uri-too-long", f"the address has more than {limits.line:,} bytes")
        return refusal("too-many-headers", f"a header has more than {limits.field:,} bytes")
    if args and "Too many headers" in str(args[0]):
        return refusal("too-many-headers", f"there are more than {limits.headers} headers")
    return refusal("bad-request", "this is no request of HTTP/1.1 (RFC 9112)")


class Sent(web.StreamResponse):
    """What aiohttp is told of an answer that is out already: may the connection stay?"""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self._keep = keep

    @property
    def keep_alive(self) -> bool:
        """May the connection stay?"""
        return self._keep

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing is left to do."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to do."""


KEEP, CLOSE = Sent(True), Sent(False)


class _Refused(Sent):
    """The last answer on a connection whose caller may still be sending."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(False)
        self._reply = reply

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send it. The connection is closed when the caller has read it, which cancels this, or a moment later."""
        connection = cast(Connection, request.protocol)
        connection.leave(self._reply)
        await asyncio.sleep(connection.front.limits.linger_seconds)


def last(reply: Reply) -> bytes:
    """A small answer after which the connection is closed."""
    assert isinstance(reply.body, bytes)
    return whole(reply, reply.body, keep=False)


def refusal(slug: str, detail: str) -> Reply:
    """A problem that is found before the API is asked; the connection ends with it."""
    reply = Problem(slug, detail, headers={"Connection": "close"}).reply()
    reply.headers = SECURITY | reply.headers
    return reply
