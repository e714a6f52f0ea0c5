"""The API as an ASGI 3 application: `uvicorn sublet_functions.asgi:app`, or mounted in another application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import FrameType
from typing import Any

from sublet.errors import Invalid
from sublet_functions.adapters.asgi_exchange import (
    Message,
    Receive,
    RequestStream,
    ResponseSender,
    Send,
    dismiss,
    prefix_of,
    target_of,
)
from sublet_functions.adapters.hosted import Hosted
from sublet_functions.http.body import BodyReader
from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request, fold_headers
from sublet_functions.http.response import DISCARD_SECONDS, SECURITY_HEADERS, StreamShutdown

log = logging.getLogger(__name__)

FREEZES = ("VERCEL", "AWS_LAMBDA_FUNCTION_NAME", "SUBLET_SUMMON_FIRST")
"""Environment variables: any of them, unless empty or `0`, shows that the platform freezes idle processes."""
CONTINUE_SECONDS = 1.0
"""Most seconds until a client that waits with `Expect: 100-continue` gets a response or the 100."""


class LoopState:
    """The API on one event loop, and how it ends."""

    def __init__(self, hosted: Hosted) -> None:
        self.loop = asyncio.get_running_loop()
        self.hosted = hosted
        self.streams = StreamShutdown()
        self._finishing: asyncio.Task[None] | None = None

    def end(self) -> None:
        """Answer waiting requests and end endless streams now; give workers 5 s to end. Do not wait."""
        self.hosted.hurry()
        self.streams.stop()
        self._finishing = self._finishing or asyncio.create_task(self.hosted.finish())

    async def aclose(self) -> None:
        """Do as `end`, wait for the workers, and close all connections."""
        self.end()
        if self._finishing:
            await self._finishing
        await self.hosted.aclose()


class StopSignals:
    """At SIGTERM or SIGINT, begins to end the API on each loop, and calls the server's own handler: long
    polls and streams would delay its stop.
    """

    def __init__(self) -> None:
        self._states: set[LoopState] = set()
        self._hooks: dict[int, partial[None]] = {}

    def add(self, state: LoopState) -> None:
        """End this state's API at signals that have a handler in Python. Only the main thread sets handlers."""
        self._forget_closed()
        self._states.add(state)
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before) and before is not self._hooks.get(number):
                with contextlib.suppress(ValueError):  # not the main thread
                    hook = partial(self._received, before)
                    signal.signal(number, hook)
                    self._hooks[number] = hook

    def remove(self, state: LoopState) -> None:
        """Do not end this state at a signal. If no other state is left, restore the server's handlers."""
        self._states.discard(state)
        self._forget_closed()
        if not self._states:
            hooks, self._hooks = self._hooks, {}
            for number, hook in hooks.items():
                before = hook.args[0]
                if signal.getsignal(number) is hook:
                    with contextlib.suppress(ValueError):
                        signal.signal(number, before)

    def _forget_closed(self) -> None:
        for state in tuple(self._states):
            if state.loop.is_closed():
                self._states.discard(state)

    def _received(self, before: Any, number: int, frame: FrameType | None) -> None:
        for state in tuple(self._states):
            with contextlib.suppress(RuntimeError):  # the loop is closed
                state.loop.call_soon_threadsafe(state.end)
        before(number, frame)


SIGNALS = StopSignals()
"""The only StopSignals of this process."""


class Asgi:
    """The ASGI application. `make` makes the API of one event loop (default: configured by the environment)."""

    def __init__(self, make: Callable[[], Hosted] | None = None, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        self._make = make or _hosted
        self._limits = limits
        self._bodies = BodyReader(limits)
        self._states: dict[asyncio.AbstractEventLoop, LoopState] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or the server's start and stop (lifespan). A WebSocket is refused."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            reason = "WebSockets are not supported: use GET /events"
            await send({"type": "websocket.close", "code": 1003, "reason": reason})
        else:
            raise NotImplementedError(f"ASGI scope {scope['type']!r} is not supported: send http or lifespan")

    @contextlib.asynccontextmanager
    async def lifespan(self, outer: Any = None) -> AsyncIterator[None]:
        """Use this as the `lifespan` of another application (`outer`, which is ignored): the API starts and ends
        with it. Raises Invalid for invalid settings, or without tokens and SUBLET_OPEN.
        """
        state = self._state()
        try:
            await state.hosted.start()
            yield
        finally:
            self._states.pop(state.loop, None)
            SIGNALS.remove(state)
            await state.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Invalid as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    def _state(self) -> LoopState:
        loop = asyncio.get_running_loop()
        state = self._states.get(loop)
        if state is None:
            for old in [one for one in tuple(self._states) if one.is_closed()]:
                self._states.pop(old, None)
            state = self._states[loop] = LoopState(self._make())
            SIGNALS.add(state)
        return state

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = fold_headers(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        )
        client = RequestStream(receive, self._limits.body_seconds)
        serving = asyncio.create_task(self._serve(scope, headers, client, send))
        either = (serving, client.disconnected)
        try:
            if headers.get("expect", "").lower() == "100-continue":
                await asyncio.wait(either, timeout=CONTINUE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                client.start()
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not client.served:
                serving.cancel()
            await asyncio.wait([serving])
            if not serving.cancelled():
                serving.result()
            if client.disconnected.done() and not client.responding:
                await dismiss(send)
        finally:
            client.close()
            if not serving.done():  # the server cancels what runs
                serving.cancel()
                await asyncio.wait([serving], timeout=DISCARD_SECONDS)

    async def _serve(
        self, scope: Message, headers: dict[str, str], client: RequestStream, send: Send
    ) -> None:
        state = self._state()
        target = target_of(scope)
        if target:
            read = partial(self._bodies.read, client, headers, client.start)
            request = Request(scope["method"], *target, headers, read=read, prefix=prefix_of(scope))
            response = await state.hosted.answer(request)
        else:
            response = Problem("bad-request", "use a path or URL as the request's target").response()
        client.discard()
        response.headers = SECURITY_HEADERS | response.headers
        sent = False
        try:
            is_head = scope["method"] == "HEAD"
            sender = ResponseSender(response, is_head, client, send, self._limits.send_seconds)
            await sender.send(state.streams)
            sent = True
        except OSError as error:
            log.debug("a response could not be sent: %s", type(error).__name__)
        except Exception as error:  # noqa: BLE001  of a stream's iterator: the connection breaks
            log.error("a response was cut off: unexpected %s while it was sent", type(error).__name__)
        finally:
            if not sent and response.on_unsent:
                await response.discard()


def _hosted() -> Hosted:
    return Hosted(freezes=any(os.environ.get(name, "0") not in ("", "0") for name in FREEZES))


app = Asgi()
