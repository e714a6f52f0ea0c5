"""HTTP/1.1 on sockets, by aiohttp: connections with limits, requests for the core, and its answers to who still listens."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from socket import socket
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from aiohttp import web

from sublet_functions.api.request import Reply, Request, folded
from sublet_functions.server.connection import CLOSE, KEEP, Connection, last, refusal
from sublet_functions.server.limits import Bodies, Limits
from sublet_functions.server.sockets import BACKLOG
from sublet_functions.server.writer import CONTINUE, LAST_RESORT, Ends, Outlet, head, undo, whole

log = logging.getLogger(__name__)

TURNED_AWAY = 64
"""Connections that are being told at a time that there is no room; beyond, they are dropped."""


class Core(Protocol):
    """What answers: `Api`, or a stand-in."""

    async def answer(self, request: Request) -> Reply:
        """Answer one request; raises nothing but CancelledError."""
        ...


class Front(web.Server):
    """Takes connections, and brings what is asked on them to the core."""

    def __init__(self, core: Core, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        super().__init__(self._handle, handler_cancellation=True)
        self.core, self.limits = core, limits
        self.open: set[Connection] = set()
        self._options = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": limits.idle_seconds,
            "lingering_time": limits.linger_seconds,
            "max_line_size": limits.line,
            "max_field_size": limits.field,
            "max_headers": limits.headers,
        }
        self._bodies = Bodies(limits)
        self._busy: set[asyncio.Task[Any]] = set()
        self._ends = Ends()
        self._afterwards: set[asyncio.Task[None]] = set()
        self._turning_away = 0
        self._stopping = False
        self._watching: asyncio.Task[None] | None = None
        self._listeners: list[asyncio.Server] = []

    def __call__(self) -> web.RequestHandler:
        """A connection that is about to be made."""
        return Connection(self, self, asyncio.get_running_loop(), self._options)

    def has_room(self) -> bool:
        """May another caller come in?"""
        return not self._stopping and len(self.open) < self.limits.connections

    def turn_away(self, transport: asyncio.Transport) -> None:
        """Tell a caller that there is no room."""
        if self._turning_away >= TURNED_AWAY:
            transport.abort()
            return
        self._turning_away += 1
        transport.write(last(refusal("busy", "all connections are in use")))
        transport.write_eof()
        asyncio.get_running_loop().call_later(self.limits.linger_seconds, self._turned_away, transport)

    def _turned_away(self, transport: asyncio.Transport) -> None:
        self._turning_away -= 1
        transport.abort()

    async def start(self, sockets: Sequence[socket]) -> None:
        """Take callers from now on."""
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch())
        for one in sockets:
            self._listeners.append(await loop.create_server(self, sock=one, backlog=BACKLOG))

    async def _watch(self) -> None:
        """Let go of callers who take too long to say what they want, or want nothing any more."""
        patience, idle = self.limits.head_seconds, self.limits.idle_seconds
        late = refusal("timeout", f"the headers were not here after {patience:g} s")
        while not self._stopping:
            await asyncio.sleep(min(patience, idle) / 10)
            now = time.monotonic()
            for connection in [one for one in self.open if not (one.busy or one.left)]:
                since = connection.head_at or connection.idle_at
                if now - since > patience and (connection.head_at or connection.has_begun()):
                    connection.leave(late)
                elif not connection.head_at and now - connection.idle_at > idle:
                    connection.force_close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(Connection, request.protocol)
        connection.begin()
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._busy.add(task)
        began = time.perf_counter()
        try:
            reply = await self._answer(request)
            sent = await self._send(request, reply)
            if log.isEnabledFor(logging.DEBUG):
                _tell(request, reply.status, time.perf_counter() - began)
            return sent
        finally:
            connection.finish()
            self._busy.discard(task)

    async def _answer(self, request: web.BaseRequest) -> Reply:
        try:
            target = _target(request.raw_path)
            if target is None or request.version < (1, 0):
                return refusal(
                    "bad-request",
                    "the first line must be a method, a path or an address, and HTTP/1.1 or HTTP/1.0",
                )
            path, query = target
            read = partial(self._read, request) if request.body_exists else None
            headers: Mapping[str, str] = request.headers
            if len({*map(str.lower, headers)}) < len(headers):
                headers = folded(headers.items())
            return await self.core.answer(Request(request.method, path, query, headers, read=read))
        except Exception as error:  # noqa: BLE001  the core raises none; if it does, others must not suffer
            last_line = traceback.extract_tb(error.__traceback__)[-1]
            log.error(
                "a defect: %s at %s:%d",
                type(error).__name__,
                os.path.basename(last_line.filename),
                last_line.lineno or 0,
            )
            return refusal("internal", "this is our fault, and the server's log says more")

    async def _read(self, request: web.BaseRequest, most: int) -> bytes:
        def begin() -> None:
            if request.transport:
                request.transport.write(CONTINUE)

        return await self._bodies.read(request.content, request.headers, begin, most)

    async def _send(self, request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        """Send an answer; one that cannot be sent is undone."""
        outlet = Outlet(request.transport, request.writer.drain, self.limits.send_seconds)
        try:
            if isinstance(reply.body, bytes):
                return await self._send_whole(request, reply, reply.body, outlet)
            return await self._send_stream(request, reply, reply.body, outlet)
        except OSError as error:
            log.debug("an answer could not be sent: %s", type(error).__name__)
            self._undo(reply)
        except asyncio.CancelledError:
            self._undo(reply)
            raise
        except Exception as error:  # noqa: BLE001  what makes the pieces of a stream may fail: the caller sees it break off
            log.error("an answer broke off: %s", type(error).__name__)
            self._undo(reply)
        outlet.abort()
        return CLOSE

    async def _send_whole(
        self, request: web.BaseRequest, reply: Reply, body: bytes, outlet: Outlet
    ) -> web.StreamResponse:
        keep = (
            request.keep_alive
            and request.content.is_eof()
            and not self._stopping
            and "Connection" not in reply.headers
        )
        await outlet.write(
            whole(reply, body, keep=keep, bare=request.method == "HEAD"), surely=reply.unsent is not None
        )
        return KEEP if keep else CLOSE

    async def _send_stream(
        self, request: web.BaseRequest, reply: Reply, pieces: AsyncIterator[bytes], outlet: Outlet
    ) -> web.StreamResponse:
        chunked = request.version >= (1, 1)
        keep = chunked and request.keep_alive and request.content.is_eof()
        await outlet.write(head(reply, keep=keep, chunked=chunked))
        await outlet.stream(pieces, Ends() if reply.finishes else self._ends, chunked=chunked)
        return KEEP if keep and not self._stopping else CLOSE

    def _undo(self, reply: Reply) -> None:
        if reply.unsent:
            task = asyncio.get_running_loop().create_task(undo(reply))
            self._afterwards.add(task)
            task.add_done_callback(self._afterwards.discard)

    async def stop(self, seconds: float, hurried: asyncio.Event) -> None:
        """Take no more requests, and let those that are there finish; end streams now, and all else after some seconds.

        `hurried`, when it is set, makes that now.
        """
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        self._ends.come()
        for _ in range(3):  # what has come in whole is about to be begun
            await asyncio.sleep(0)
        for connection in [one for one in self.open if not one.busy]:
            connection.force_close()
        await self._finish(seconds, hurried)
        if self._watching:
            self._watching.cancel()
        await self.shutdown(0.1)
        if self._afterwards:
            await asyncio.wait(self._afterwards, timeout=LAST_RESORT)

    async def _finish(self, seconds: float, hurried: asyncio.Event) -> None:
        hurry = asyncio.get_running_loop().create_task(hurried.wait())
        until = time.monotonic() + seconds
        while self._busy and not hurry.done() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({*self._busy, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if self._busy:
            log.warning("%d requests were cut short", len(self._busy))
            for task in tuple(self._busy):
                task.cancel()
            await asyncio.wait(tuple(self._busy), timeout=LAST_RESORT)


def _target(raw: str) -> tuple[str, str] | None:
    """Path and query of what stands in the request's first line; None for what is no address."""
    if raw.startswith("/"):
        path, _, query = raw.partition("#")[0].partition("?")
        return path, query
    try:
        parts = urlsplit(raw)  # a proxy's request names it in full
    except ValueError:
        return None
    return (parts.path or "/", parts.query) if parts.scheme in ("http", "https") and parts.netloc else None


def _tell(request: web.BaseRequest, status: int, seconds: float) -> None:
    path = request.raw_path.partition("?")[0][:200].encode("ascii", "backslashreplace").decode()
    log.debug("%s %s %d %.1f ms", request.method, path, status, seconds * 1000)
