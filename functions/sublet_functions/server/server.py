"""The server: accepts connections, and lets requests finish when it stops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from socket import socket

from aiohttp import web

from sublet_functions.http.limits import Limits
from sublet_functions.http.response import DISCARD_SECONDS
from sublet_functions.server.connection import Application, Connection, ServerState, handle
from sublet_functions.server.refusals import refusal
from sublet_functions.server.sockets import BACKLOG

log = logging.getLogger(__name__)


class HttpServer(web.Server):
    """Passes the requests of its connections to the application."""

    def __init__(self, application: Application, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        super().__init__(handle, handler_cancellation=True)
        self.state = ServerState(application, limits)
        self._options = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": limits.idle_seconds,
            "lingering_time": limits.linger_seconds,
            "max_line_size": limits.line,
            "max_field_size": limits.field,
            "max_headers": limits.headers,
        }
        self._watching: asyncio.Task[None] | None = None
        self._listeners: list[asyncio.Server] = []

    def __call__(self) -> web.RequestHandler:
        """Make the protocol of one new connection."""
        return Connection(self, self.state, asyncio.get_running_loop(), self._options)

    async def start(self, sockets: Sequence[socket]) -> None:
        """Accept connections on these sockets from now on."""
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch())
        for one in sockets:
            self._listeners.append(await loop.create_server(self, sock=one, backlog=BACKLOG))

    async def _watch(self) -> None:
        limits = self.state.limits
        late = refusal(
            "timeout", f"the headers did not arrive within {limits.head_seconds:g} s: send them faster"
        )
        while not self.state.stopping:
            await asyncio.sleep(min(limits.head_seconds, limits.idle_seconds) / 10)
            now = time.monotonic()
            for connection in [one for one in self.state.open if not (one.busy or one.left)]:
                since = connection.head_at or connection.idle_at
                if now - since > limits.head_seconds and (connection.head_at or connection.has_begun()):
                    connection.leave(late)
                elif not connection.head_at and now - connection.idle_at > limits.idle_seconds:
                    connection.force_close()

    async def stop(self, seconds: float, hurried: asyncio.Event) -> None:
        """Accept no more requests, end streams, and finish running requests; those that run after `seconds`,
        or when `hurried` is set, are cancelled.
        """
        state = self.state
        state.stopping = True
        for listener in self._listeners:
            listener.close()
        state.streams.stop()
        for _ in range(3):  # complete requests start in the next rounds of the loop
            await asyncio.sleep(0)
        for connection in [one for one in state.open if not one.busy]:
            connection.force_close()
        await self._finish(seconds, hurried)
        if self._watching:
            self._watching.cancel()
        await self.shutdown(0.1)
        if state.discarding:
            await asyncio.wait(state.discarding, timeout=DISCARD_SECONDS)

    async def _finish(self, seconds: float, hurried: asyncio.Event) -> None:
        running = self.state.running
        hurry = asyncio.get_running_loop().create_task(hurried.wait())
        until = time.monotonic() + seconds
        while running and not hurry.done() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({*running, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if running:
            log.warning(
                "%d requests were cancelled: they had not ended when the server had to stop", len(running)
            )
            for task in tuple(running):
                task.cancel()
            await asyncio.wait(tuple(running), timeout=DISCARD_SECONDS)
