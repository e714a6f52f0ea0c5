"""The API as an ASGI 3 application, for any server that takes one (`uvicorn sublet_functions.asgi:app`), or mounted in another one.

Nothing is imported of any framework, and nothing is connected before the first request, or the server's start.
"""

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
from sublet_functions.adapters.asgi_exchange import Answer, Caller, Message, Receive, Send, dismiss, target_of
from sublet_functions.adapters.hosted import Hosted
from sublet_functions.api.request import Request, folded
from sublet_functions.api.response import Problem
from sublet_functions.api.routes import SECURITY
from sublet_functions.server.limits import Bodies, Limits
from sublet_functions.server.writer import LAST_RESORT, Ends, undo

log = logging.getLogger(__name__)

FROZEN = ("VERCEL", "AWS_LAMBDA_FUNCTION_NAME", "SUBLET_PROMPT")
"""Variables that say that a process may be frozen between two requests: those of platforms that do, and ours for others."""


PATIENCE = 1.0
"""Seconds after which a caller who waits to be told to send a body is told so, though nobody reads it: most send it by then."""


class Place:
    """The API on one event loop."""

    def __init__(self, hosted: Hosted) -> None:
        self.loop = asyncio.get_running_loop()
        self.hosted, self.ends = hosted, Ends()
        self._finishing: asyncio.Task[None] | None = None

    def end(self) -> None:
        """Have nobody wait any more, streams end, and workers finish or give back."""
        self.hosted.hurry()
        self.ends.come()
        self._finishing = self._finishing or asyncio.create_task(self.hosted.finish())

    async def aclose(self) -> None:
        """End, and let go of everything."""
        self.end()
        if self._finishing:
            await self._finishing
        await self.hosted.aclose()


class Signals:
    """Tells all places of a process when the server is told to stop. What the signals do besides, they do as before.

    Servers wait for all requests before they say that it is over; those that wait for a job, and streams, would go on.
    """

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._hooks: dict[int, partial[None]] = {}

    def tell(self, place: Place) -> None:
        """Tell a place, too."""
        self._forget_closed()
        self._places.add(place)
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before) and before is not self._hooks.get(number):
                with contextlib.suppress(
                    ValueError
                ):  # not the main thread: the server's stop comes by other ways
                    hook = partial(self._heard, before)
                    signal.signal(number, hook)
                    self._hooks[number] = hook

    def forget(self, place: Place) -> None:
        """Tell a place no more; when there is none left, the signals are as they were."""
        self._places.discard(place)
        self._forget_closed()
        if not self._places:
            hooks, self._hooks = self._hooks, {}
            for number, hook in hooks.items():
                before = hook.args[0]
                if signal.getsignal(number) is hook:
                    with contextlib.suppress(ValueError):
                        signal.signal(number, before)

    def _forget_closed(self) -> None:
        """Have those be garbage whose loops are closed: nothing of them can be awaited any more."""
        for place in tuple(self._places):
            if place.loop.is_closed():
                self._places.discard(place)

    def _heard(self, before: Any, number: int, frame: FrameType | None) -> None:
        for place in tuple(self._places):
            with contextlib.suppress(RuntimeError):  # the loop is closed
                place.loop.call_soon_threadsafe(place.end)
        before(number, frame)


SIGNALS = Signals()
"""One for all: with a hook for each event loop, each would keep the one before it, and its connections, for good."""


class Asgi:
    """The application. What it is connected to belongs to an event loop, and is made when that first brings a request."""

    def __init__(self, make: Callable[[], Hosted] | None = None, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        self._make, self._limits = make or _hosted, limits
        self._bodies = Bodies(limits)
        self._places: dict[asyncio.AbstractEventLoop, Place] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection of the server's: an HTTP request, or its own life from start to end."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._life(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send(
                {
                    "type": "websocket.close",
                    "code": 1003,
                    "reason": "there are no websockets here: GET /events streams",
                }
            )
        else:
            raise NotImplementedError(f"an ASGI server's {scope['type']!r} is not known here")

    @contextlib.asynccontextmanager
    async def lifespan(self, outer: Any = None) -> AsyncIterator[None]:
        """Start and end with the application that this one is mounted in, whose `lifespan` this can be. Raises Invalid."""
        place = self._place()
        try:
            await place.hosted.start()
            yield
        finally:
            self._places.pop(place.loop, None)
            SIGNALS.forget(place)
            await place.aclose()

    async def _life(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Invalid as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    def _place(self) -> Place:
        loop = asyncio.get_running_loop()
        place = self._places.get(loop)
        if place is None:
            for old in [one for one in tuple(self._places) if one.is_closed()]:
                self._places.pop(old, None)
            place = self._places[loop] = Place(self._make())
            SIGNALS.tell(place)
        return place

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = folded(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        )
        caller = Caller(receive, self._limits.body_seconds)
        serving = asyncio.create_task(self._serve(scope, headers, caller, send))
        either = (serving, caller.gone)
        try:
            if headers.get("expect", "").lower() == "100-continue":
                await asyncio.wait(either, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                caller.listen()
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not caller.served:
                serving.cancel()
            await asyncio.wait([serving])
            if not serving.cancelled():
                serving.result()
            if caller.gone.done() and not caller.told:
                await dismiss(send)
        finally:
            caller.forget()
            if not serving.done():  # the server cuts short what runs
                serving.cancel()
                await asyncio.wait([serving], timeout=LAST_RESORT)

    async def _serve(self, scope: Message, headers: dict[str, str], caller: Caller, send: Send) -> None:
        place = self._place()
        target = target_of(scope)
        if target:
            read = partial(self._bodies.read, caller, headers, caller.listen)
            reply = await place.hosted.answer(Request(scope["method"], *target, headers, read=read))
        else:
            reply = Problem("bad-request", "the first line must be a method, a path or an address").reply()
        caller.spurn()
        reply.headers = SECURITY | reply.headers
        sent = False
        try:
            answer = Answer(reply, scope["method"] == "HEAD", caller, send, self._limits.send_seconds)
            await answer.send(place.ends)
            sent = True
        except OSError as error:
            log.debug("an answer could not be sent: %s", type(error).__name__)
        except Exception as error:  # noqa: BLE001  what makes the pieces of a stream may fail: the caller sees it break off
            log.error("an answer broke off: %s", type(error).__name__)
        finally:
            if not sent and reply.unsent:
                await undo(reply)


def _hosted() -> Hosted:
    return Hosted(prompt=any(os.environ.get(name, "0") not in ("", "0") for name in FROZEN))


app = Asgi()
"""For servers: `sublet_functions.asgi:app`."""
