"""One client's connection: a request handler of aiohttp's low-level server, with our limits and problem
documents.

`web.Application` lacks defences against bad input.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from sublet_functions.http.body import BodyReader
from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import internal_error
from sublet_functions.http.request import Count, Request, fold_headers
from sublet_functions.http.response import Response, StreamShutdown
from sublet_functions.server.head_meter import PIECE, HeadBudget, HeadMeter
from sublet_functions.server.refusals import close, encode_last, malformed, refusal
from sublet_functions.server.writer import CONTINUE, ResponseWriter, encode_head, encode_response

log = logging.getLogger(__name__)

REFUSING_MAX = 64
"""Beyond the limit of connections, so many at a time are answered 503; others are dropped."""


class Application(Protocol):
    """The application that answers requests: the API."""

    async def answer(self, request: Request) -> Response:
        """Answer one request; raises only CancelledError."""
        ...


@dataclass
class ServerState:
    """What all connections of a server share: its application, limits and counters."""

    application: Application
    limits: Limits
    bodies: BodyReader = field(init=False)
    heads: HeadBudget = field(init=False)
    streams: StreamShutdown = field(default_factory=StreamShutdown)
    open: set[Connection] = field(default_factory=set)
    refusing: int = 0
    running: set[asyncio.Task[Any]] = field(default_factory=set)
    discarding: set[asyncio.Task[None]] = field(default_factory=set)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.bodies = BodyReader(self.limits)
        self.heads = HeadBudget(self.limits)


class Connection(web.RequestHandler):
    """One client's connection to the server."""

    __slots__ = ("_full", "_head", "_last", "_rest", "busy", "head_at", "idle_at", "left", "refused", "state")

    def __init__(
        self,
        server: web.Server,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
        options: dict[str, Any],
    ) -> None:
        super().__init__(server, loop=loop, **options)
        self.state = state
        self.busy = False
        self.head_at = 0.0
        """When (monotonic clock) the first byte of an incomplete request arrived; else 0."""
        self.idle_at = time.monotonic()
        self.refused = False
        self.left = False
        self._head = HeadMeter(state.heads)
        self._full = False
        self._rest = b""
        self._last: StreamReader = EMPTY_PAYLOAD
        """Body of the last request that was parsed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection. If too many are open, or the server stops, answer 503 or drop it."""
        state = self.state
        if not state.stopping and len(state.open) < state.limits.connections:
            state.open.add(self)
            super().connection_made(transport)
            return
        self.refused = True
        self._refuse(cast(asyncio.Transport, transport))

    def _refuse(self, transport: asyncio.Transport) -> None:
        state = self.state
        if state.refusing >= REFUSING_MAX:
            transport.abort()
            return

        def end() -> None:
            state.refusing -= 1
            transport.abort()

        state.refusing += 1
        transport.write(
            encode_last(
                refusal(
                    "busy",
                    f"the server is stopping, or has {state.limits.connections:,} open connections, its limit: retry later",
                )
            )
        )
        transport.write_eof()
        asyncio.get_running_loop().call_later(state.limits.linger_seconds, end)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a closed connection. asyncio calls this."""
        self._head.clear()
        if not self.refused:
            self.state.open.discard(self)
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, and note when a request begins."""
        if self.refused:
            return
        if not self.busy and not self.head_at:
            self.head_at = time.monotonic()
        try:
            self._rest += data
            while True:
                size = PIECE if self._last.is_eof() else len(self._rest)
                piece, self._rest = self._rest[:size], self._rest[size:]
                self._parse(piece)
                # with a full queue, aiohttp calls again, with b"", when it has answered some
                if not self._rest or len(self._messages) >= self._max_msg_queue_size:
                    break
        except Exception as error:  # noqa: BLE001  aiohttp's parser lets some errors of malformed input through
            log.debug("malformed HTTP: %s", type(error).__name__)
            self.leave(malformed(error, self.state.limits))

    def _parse(self, data: bytes) -> None:
        if self.left or self._full:
            return
        before, in_head = len(self._messages), self._last.is_eof()
        super().data_received(data)
        if len(self._messages) > before:
            self._last = self._messages[-1][1]
            if self._head.held:
                self._head.clear()
        elif data and in_head and (problem := self._head.add(len(data))):
            # after the answers to earlier requests, as aiohttp does
            self._head.clear()
            self._full = True
            self._messages.append((_ErrInfo(400, problem, ""), EMPTY_PAYLOAD))
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the connection's last response: for malformed or too large HTTP (`status` 400) its problem, with
        400, 414, 431 or 503; for any other error 500, logged.
        """
        self.head_at = 0.0
        if status != 400:
            log.error("a request was answered 500: unexpected %s in aiohttp", type(exc).__name__)
            return LastResponse(close(internal_error()))
        log.debug("malformed HTTP: %s", type(exc).__name__)
        return LastResponse(malformed(exc, self.state.limits))

    def has_begun(self) -> bool:
        """Whether a part of a request has arrived. If so, the connection can now only be closed."""
        try:
            return self._parser is not None and self._parser.feed_eof() is not None
        except Exception as error:  # noqa: BLE001  incomplete headers
            log.debug("incomplete headers: %s", type(error).__name__)
            return True

    def leave(self, response: Response) -> None:
        """Send a last response and close this end, once. Discard for `linger_seconds` what the client still
        sends, so that it can read the response; then disconnect.
        """
        self.head_at = 0.0
        self._head.clear()
        if self.left:
            return
        self.left = True
        self.close()  # read no further request
        transport = self.transport
        if transport is not None:
            transport.write(encode_last(response))
            if transport.can_write_eof():
                transport.write_eof()
            asyncio.get_running_loop().call_later(self.state.limits.linger_seconds, self.force_close)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; return KEEP or CLOSE."""
        self.busy = True
        self.head_at = 0.0
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self.state.running.add(task)
        began = time.perf_counter()
        try:
            response = await self._answer(request)
            sent = await self._send(request, response)
            if log.isEnabledFor(logging.DEBUG):
                _log_request(request, response.status, time.perf_counter() - began)
            return sent
        finally:
            self.busy = False
            self.idle_at = time.monotonic()
            self.state.running.discard(task)

    async def _answer(self, request: web.BaseRequest) -> Response:
        try:
            target = request.raw_path
            if target.startswith("/"):
                path, _, query = target.partition("#")[0].partition("?")
            else:
                path, query = _absolute_target(target)
            if not path or request.version < (1, 0):
                return refusal(
                    "bad-request",
                    "the request line is malformed: use a method, a path or URL, and HTTP/1.1 or 1.0",
                )
            headers: Mapping[str, str] = request.headers
            if len({*map(str.lower, headers)}) < len(headers):
                headers = fold_headers(headers.items())
            read = partial(self._read, request) if request.body_exists else None
            return await self.state.application.answer(
                Request(request.method, path, query, headers, read=read)
            )
        except Exception as error:  # noqa: BLE001  the application raises none; if it does, the server goes on
            place = traceback.extract_tb(error.__traceback__)[-1]
            file = os.path.basename(place.filename)
            log.error(
                "a request was answered 500: unexpected %s at %s:%d",
                type(error).__name__,
                file,
                place.lineno or 0,
            )
            return close(internal_error())

    async def _read(self, request: web.BaseRequest, most: int, count: Count | None = None, /) -> bytes:
        def send_continue() -> None:
            if request.transport:
                request.transport.write(CONTINUE)

        return await self.state.bodies.read(request.content, request.headers, send_continue, most, count)

    async def _send(self, request: web.BaseRequest, response: Response) -> web.StreamResponse:
        writer = ResponseWriter(request.transport, request.writer.drain, self.state.limits.send_seconds)
        try:
            if isinstance(response.body, bytes):
                return await self._send_whole(request, response, response.body, writer)
            return await self._send_stream(request, response, writer)
        except OSError as error:
            log.debug("a response could not be sent: %s", type(error).__name__)
            self._discard(response)
        except asyncio.CancelledError:
            self._discard(response)
            raise
        except Exception as error:  # noqa: BLE001  of a stream's iterator: the connection breaks
            log.error("a response was cut off: unexpected %s while it was sent", type(error).__name__)
            self._discard(response)
        writer.abort()
        return CLOSE

    async def _send_whole(
        self, request: web.BaseRequest, response: Response, body: bytes, writer: ResponseWriter
    ) -> web.StreamResponse:
        keep = (
            request.keep_alive
            and request.content.is_eof()
            and not self.state.stopping
            and "Connection" not in response.headers
        )
        data = encode_response(response, body, keep=keep, is_head=request.method == "HEAD")
        await writer.write(data, confirm=response.on_unsent is not None)
        return KEEP if keep else CLOSE

    async def _send_stream(
        self, request: web.BaseRequest, response: Response, writer: ResponseWriter
    ) -> web.StreamResponse:
        chunked = request.version >= (1, 1)
        keep = chunked and request.keep_alive and request.content.is_eof()
        await writer.write(encode_head(response, keep=keep, chunked=chunked))
        shutdown = StreamShutdown() if response.finite else self.state.streams
        await writer.stream(response, shutdown, chunked=chunked)
        return KEEP if keep and not self.state.stopping else CLOSE

    def _discard(self, response: Response) -> None:
        if response.on_unsent:
            task = asyncio.get_running_loop().create_task(response.discard())
            self.state.discarding.add(task)
            task.add_done_callback(self.state.discarding.discard)


async def handle(request: web.BaseRequest) -> web.StreamResponse:
    """Answer one request on its connection. aiohttp calls this."""
    return await cast(Connection, request.protocol).handle(request)


def _absolute_target(target: str) -> tuple[str, str]:
    try:
        parts = urlsplit(target)
    except ValueError:
        return "", ""
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return "", ""
    return parts.path or "/", parts.query


class SentResponse(web.StreamResponse):
    """Tells aiohttp that a response was sent, and whether the connection stays open."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self._keep = keep

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open."""
        return self._keep

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: the response was sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the response was sent."""


KEEP = SentResponse(True)
CLOSE = SentResponse(False)


class LastResponse(SentResponse):
    """The last response on a connection. More data from its client is discarded."""

    def __init__(self, response: Response) -> None:
        super().__init__(False)
        self._response = response

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send the response. Then wait for `linger_seconds`; asyncio cancels this when the client closes."""
        connection = cast(Connection, request.protocol)
        connection.leave(self._response)
        await asyncio.sleep(connection.state.limits.linger_seconds)


def _log_request(request: web.BaseRequest, status: int, seconds: float) -> None:
    path = request.raw_path.partition("?")[0][:200].encode("ascii", "backslashreplace").decode()
    log.debug("%s %s %d %.1f ms", request.method, path, status, seconds * 1000)
