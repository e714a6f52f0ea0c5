"""Sends calls to Redis, and nothing else: two thin transports, async and sync, over the same requests.

A call that got no answer is sent again, the very same bytes, a few times: every script gives a repeated request its first
answer. The async transport packs the calls of one turn of the event loop into one round trip.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
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
from jobs.errors import JobsError, Unavailable, Unfit
from jobs.scripts import Call, refusal

T = TypeVar("T")
Plan = Generator[Call[Any], Any, T]
"""Yields calls, is sent their answers, returns its own (see `jobs.plans`)."""

PAUSES = (0.05, 0.2)
"""Seconds before a call without an answer is sent again."""
PATIENCE = 8.0
"""Seconds after which a call is not sent again: Redis remembers a claim for 10."""
PIPELINE = 64
"""Calls that share one round trip."""

_NO_ANSWER = (ConnectionError, TimeoutError, InvalidResponse, OSError)
_STRIPPED = {OutOfMemoryError: "OOM ", ReadOnlyError: "READONLY ", NoPermissionError: "NOPERM "}
"""The codes that redis-py takes off a message when it has a class for them."""


class Transport:
    """Runs calls on an event loop. Calls made in one turn of the loop share a round trip, and none waits for a second turn."""

    def __init__(self, settings: Settings, client: "redis.asyncio.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect(settings)
        self._outbox: list[tuple[Call[Any], asyncio.Future[Any]]] = []
        self._deliveries: set[asyncio.Future[Any]] = set()

    async def run(self, call: Call[T]) -> T:
        """Send a call and read its reply. Raises Refused when Redis said no, Unavailable when nothing answered in time."""
        until = time.monotonic() + PATIENCE
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
        if len(call.commands) > 1:
            return await asyncio.shield(self._deliver_apart(self._read(call)))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._outbox.append((call, future))
        if len(self._outbox) == 1:
            loop.call_soon(self._flush)
        return await future

    async def _read(self, call: Call[Any]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipe:
            for command in call.commands:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute()
            return replies

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        for i in range(0, len(outbox), PIPELINE):
            self._deliver_apart(self._deliver(outbox[i : i + PIPELINE]))

    def _deliver_apart(self, delivery: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """A task of its own: redis-py waits by wait_for, which may swallow its caller's cancellation before Python 3.12."""
        task = asyncio.ensure_future(delivery)
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)
        return task

    async def _deliver(self, batch: list[tuple[Call[Any], asyncio.Future[Any]]]) -> None:
        try:
            replies = await self._send([call.commands[0] for call, _ in batch])
            unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if unknown:
                again = await self._send([batch[i][0].with_text() for i in unknown])
                for i, reply in zip(unknown, again, strict=True):
                    replies[i] = reply
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
            replies = [error] * len(batch)
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    async def _send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute(raise_on_error=False)
            return replies

    async def aclose(self) -> None:
        """Finish what is under way and close the connections."""
        if self._deliveries:
            await asyncio.wait(self._deliveries)
        await self.client.aclose()


class SyncTransport:
    """Runs calls without an event loop."""

    def __init__(self, settings: Settings, client: "redis.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect_sync(settings)

    def run(self, call: Call[T]) -> T:
        """Send a call and read its reply. Raises Refused when Redis said no, Unavailable when nothing answered in time."""
        until = time.monotonic() + PATIENCE
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
        if len(call.commands) > 1:
            with self.client.pipeline(transaction=False) as pipe:
                for command in call.commands:
                    pipe.execute_command(*command)
                return pipe.execute()
        try:
            return self.client.execute_command(*call.commands[0])
        except NoScriptError:
            return self.client.execute_command(*call.with_text())

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
    return Unavailable(f"no answer from Redis at {settings.shown_url} ({why}): is it up, and is SUBLET_REDIS_URL right?")
