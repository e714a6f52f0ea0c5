"""Sends calls to Redis, and nothing else: two thin transports, async and sync, over the same requests.

A call that got no answer is sent again, the very same bytes, a few times: every script gives a repeated request its first
answer. The async transport packs the calls of one turn of the event loop into one round trip.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import redis
import redis.asyncio
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)

from jobs.config import Settings, connect, connect_sync
from jobs.errors import Busy, JobsError, Unavailable, Unfit
from jobs.line import POOL_EMPTY, Ask, Lent, Line, SyncLent, SyncLines
from jobs.scripts import Call, refusal

T = TypeVar("T")
Plan = Generator[Call[Any], Any, T]
"""Yields calls, is sent their answers, returns its own (see `jobs.plans`)."""

PAUSES = (0.05, 0.2)
"""Seconds before a call without an answer is sent again."""

_NO_ANSWER = (ConnectionError, TimeoutError, InvalidResponse, OSError)
_STRIPPED = {OutOfMemoryError: "OOM ", ReadOnlyError: "READONLY ", NoPermissionError: "NOPERM "}
"""The codes that redis-py takes off a message when it has a class for them."""


class Transport:
    """Runs calls on an event loop. Calls made in one turn of the loop share a round trip, and none waits for a second turn.

    The first one does not even wait for the next, where nothing else is under way.

    Scripts go over a `Line` of their own; reads, whose replies redis-py puts in order, and all calls where somebody has given
    a client, go through that client.
    """

    def __init__(self, settings: Settings, client: "redis.asyncio.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect(settings)
        self._line = Lent(self.client) if client or settings.door else Line(self.client.connection_pool)
        self._outbox: list[Ask] = []
        self._reading: set[asyncio.Future[Any]] = set()

    async def run(self, call: Call[T]) -> T:
        """Send a call and read its reply. Raises Refused when Redis said no, Unavailable when nothing answered in time."""
        until = time.monotonic() + self.settings.patience
        for pause in (*PAUSES, None):
            try:
                return call.read(await self._reply(call))
            except _NO_ANSWER as error:
                if pause is None or time.monotonic() > until or denied(error):
                    raise away(self.settings, error) from error
                await asyncio.sleep(pause)
            except ResponseError as error:
                raise refused(error) from error
        raise AssertionError("unreachable")

    async def _reply(self, call: Call[Any]) -> Any:
        if not call.text:
            return await self._read(call)
        try:
            return await self._ask(call.commands[0])
        except NoScriptError:
            return await self._ask(call.with_text())

    def _ask(self, command: tuple[Any, ...]) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        ask = command, partial(_tell, future)
        if not self._outbox and self._line.idle:
            self._line.send([ask])
            return future
        self._outbox.append(ask)
        if len(self._outbox) == 1:
            loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        self._line.send(outbox)

    async def _read(self, call: Call[Any]) -> Any:
        # A task of its own: redis-py waits by wait_for, which may swallow its caller's cancellation before Python 3.12.
        reading = asyncio.ensure_future(self._pipe(call.commands))
        self._reading.add(reading)
        reading.add_done_callback(self._read_done)
        return await asyncio.shield(reading)

    def _read_done(self, reading: "asyncio.Future[Any]") -> None:
        self._reading.discard(reading)
        if not reading.cancelled():
            reading.exception()  # whoever asked may have left: then nobody else looks at it

    async def _pipe(self, commands: Sequence[tuple[Any, ...]]) -> Any:
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute()
            return replies if len(commands) > 1 else replies[0]

    async def aclose(self) -> None:
        """Finish what is under way and close the connections."""
        if self._reading:
            await asyncio.wait(self._reading)
        await self._line.aclose()
        await self.client.aclose()


def _tell(future: "asyncio.Future[Any]", reply: Any) -> None:
    if future.done():  # whoever asked has left
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)


class SyncTransport:
    """Runs calls without an event loop."""

    def __init__(self, settings: Settings, client: "redis.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect_sync(settings)
        self._line = SyncLent(self.client) if client or settings.door else SyncLines(self.client.connection_pool)

    def run(self, call: Call[T]) -> T:
        """Send a call and read its reply. Raises Refused when Redis said no, Unavailable when nothing answered in time."""
        until = time.monotonic() + self.settings.patience
        for pause in (*PAUSES, None):
            try:
                return call.read(self._reply(call))
            except _NO_ANSWER as error:
                if pause is None or time.monotonic() > until or denied(error):
                    raise away(self.settings, error) from error
                time.sleep(pause)
            except ResponseError as error:
                raise refused(error) from error
        raise AssertionError("unreachable")

    def _reply(self, call: Call[Any]) -> Any:
        if not call.text:
            with self.client.pipeline(transaction=False) as pipe:
                for command in call.commands:
                    pipe.execute_command(*command)
                replies = pipe.execute()
                return replies if len(replies) > 1 else replies[0]
        try:
            return self._line.ask(call.commands[0])
        except NoScriptError:
            return self._line.ask(call.with_text())

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


async def follow(run: Callable[[Call[Any]], Awaitable[Any]], plan: Plan[T]) -> T:
    """Carry a plan out, sending each call with `run`."""
    answer, failure = None, None
    while True:
        try:
            call = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = await run(call), None
        except JobsError as error:
            failure = error


def follow_sync(run: Callable[[Call[Any]], Any], plan: Plan[T]) -> T:
    """Carry a plan out without an event loop."""
    answer, failure = None, None
    while True:
        try:
            call = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = run(call), None
        except JobsError as error:
            failure = error


def refused(error: ResponseError) -> Exception:
    """The error of ours for a reply of Redis's that begins with a known code; else the reply itself, which is our bug."""
    return refusal(_STRIPPED.get(type(error), "") + str(error)) or error


def denied(error: Exception) -> bool:
    """Did the server refuse the password? redis-py's asyncio client wraps that in a plain ConnectionError."""
    return isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)


def away(settings: Settings, error: Exception) -> Unavailable:
    """The error for a server that did not answer, in words that say what to do."""
    if isinstance(error, InvalidResponse):
        return Unfit(f"what answers at {settings.shown_url} does not speak Redis's protocol: check SUBLET_REDIS_URL")
    if denied(error):
        return Unavailable(f"Redis at {settings.shown_url} refused this client ({error}): check user and password in the URL")
    why = str(error) or type(error).__name__
    if why.startswith(POOL_EMPTY):
        return Busy("all connections to Redis are in use: there is more to do at once than this process has room for")
    return Unavailable(f"no answer from Redis at {settings.shown_url} ({why}): is it up, and is SUBLET_REDIS_URL right?")
