"""Sends calls to Redis, and nothing else: two thin transports, async and sync, over the same requests.

A call that got no answer is sent again, the very same bytes, a few times: every script gives a repeated request its first
answer. The async transport packs the calls of one turn of the event loop into one round trip.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar, cast

import redis
import redis.asyncio
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from sublet.connection.pipeline import POOL_EMPTY, Ask, Commands, Lent, Line, SyncLent, SyncLines, resolve
from sublet.connection.settings import Settings, connect, connect_sync
from sublet.connection.wait_barrier import Together, barriers, sorted_out
from sublet.errors import Busy, Invalid, JobsError, Unavailable, Unfit
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, refusal

T = TypeVar("T")

PAUSES = (0.05, 0.2)
"""Seconds before a call without an answer is sent again."""

SHARED = (("INFO", "memory"), ("CONFIG", "GET", "append[of]*"), ("COMMAND INFO", "waitaof"))
"""Reads of what a server says of itself: whoever asks while one is under way gets its answer, as a thousand may at once."""

_NO_ANSWER = (ConnectionError, TimeoutError, InvalidResponse, OSError)
_STRIPPED = {
    OutOfMemoryError: "OOM ", ReadOnlyError: "READONLY ", NoPermissionError: "NOPERM ", MovedError: "MOVED ", AskError: "ASK ",
    TryAgainError: "TRYAGAIN ", ClusterDownError: "CLUSTERDOWN ", MasterDownError: "MASTERDOWN ",
}  # fmt: skip
"""The codes that redis-py takes off a message when it has a class for them."""


class Transport:
    """Runs calls on an event loop. Calls made in one turn of the loop share a round trip, and none waits for a second turn.

    The first one does not even wait for the next, where nothing else is under way.

    Scripts go over a `Line` of their own, those that are waited for over another (see `sublet.connection.wait_barrier`); reads, whose replies
    redis-py puts in order, and all calls where somebody has given a client, go through that client.
    """

    def __init__(self, settings: Settings, client: "redis.asyncio.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect(settings)
        self._line = Lent(self.client) if client or settings.door else Line(self.client.connection_pool)
        self._together: dict[Commands, Together] = {}
        self._outbox: list[Ask] = []
        self._reading: set[asyncio.Future[Any]] = set()
        self._looks: dict[Commands, asyncio.Future[Any]] = {}

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
            except UnicodeEncodeError as error:
                raise Invalid(f"{error.object[:80]!r} is no text: it has half of a character in it") from None
        raise AssertionError("unreachable")

    async def follow(self, plan: Plan[T]) -> T:
        """Carry out a plan: send each call that it yields, and return its result. Raises what the plan raises."""
        answer, failure = None, None
        while True:
            try:
                call = plan.throw(failure) if failure else plan.send(answer)
            except StopIteration as end:
                return cast(T, end.value)
            try:
                answer, failure = await self.run(call), None
            except JobsError as error:
                failure = error

    async def _reply(self, call: Call[Any]) -> Any:
        if not call.text:
            return await self._read(call)
        if call.waits:
            return await self._wait(call)
        try:
            return await self._ask(call.commands[0])
        except NoScriptError:
            return await self._ask(call.with_text())

    async def _wait(self, call: Call[Any]) -> Any:
        together = self._together.get(call.waits)
        if together is None:
            lent, most = isinstance(self._line, Lent), 1 << 30  # they must not be told apart
            line = Lent(self.client, most) if lent else Line(self.client.connection_pool, waiting(call))
            together = self._together[call.waits] = Together(line, call.waits)
        try:
            return await together.ask(call.commands)
        except NoScriptError:
            return await together.ask(with_texts(call))

    def _ask(self, command: tuple[Any, ...]) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        ask = command, partial(resolve, future)
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
        reading = self._looks.get(call.commands)
        if reading is None or reading.done():
            reading = asyncio.ensure_future(self._pipe(call.commands))
            self._reading.add(reading)
            reading.add_done_callback(self._read_done)
            if call.commands[-1] in SHARED:
                self._looks[call.commands] = reading
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
        for together in self._together.values():
            await together.aclose()
        await self._line.aclose()
        await self.client.aclose()


def waiting(call: Call[Any]) -> float:
    """Seconds that the server may wait for a call."""
    return sum(wait[-1] / 1000 for wait in call.waits if isinstance(wait[-1], int))


def with_texts(call: Call[Any]) -> Commands:
    """A call's scripts again, for a server that answered NOSCRIPT."""
    return [("EVAL", call.text, *rest) for _, _, *rest in call.commands]


class SyncTransport:
    """Runs calls without an event loop."""

    def __init__(self, settings: Settings, client: "redis.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect_sync(settings)
        self._line = (
            SyncLent(self.client) if client or settings.door else SyncLines(self.client.connection_pool)
        )

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
            except UnicodeEncodeError as error:
                raise Invalid(f"{error.object[:80]!r} is no text: it has half of a character in it") from None
        raise AssertionError("unreachable")

    def follow(self, plan: Plan[T]) -> T:
        """Carry out a plan: send each call that it yields, and return its result. Raises what the plan raises."""
        answer, failure = None, None
        while True:
            try:
                call = plan.throw(failure) if failure else plan.send(answer)
            except StopIteration as end:
                return cast(T, end.value)
            try:
                answer, failure = self.run(call), None
            except JobsError as error:
                failure = error

    def _reply(self, call: Call[Any]) -> Any:
        if not call.text:
            with self.client.pipeline(transaction=False) as pipe:
                for command in call.commands:
                    pipe.execute_command(*command)
                replies = pipe.execute()
                return replies if len(replies) > 1 else replies[0]
        if call.waits:
            return self._wait(call)
        try:
            return self._line.ask(call.commands[0])
        except NoScriptError:
            return self._line.ask(call.with_text())

    def _wait(self, call: Call[Any]) -> Any:
        for scripts in (call.commands, with_texts(call)):
            replies = self._line.ask_all([*scripts, *barriers(scripts), *call.waits], waiting(call))
            found = sorted_out(replies[: len(scripts)], replies[len(scripts) :], len(call.waits))
            if not isinstance(found, NoScriptError):
                break
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def refused(error: ResponseError) -> Exception:
    """The error of ours for a reply of Redis's that begins with a known code; else the reply itself, which is our bug."""
    return refusal(_STRIPPED.get(type(error), "") + str(error)) or error


def denied(error: Exception) -> bool:
    """Did the server refuse the password? redis-py's asyncio client wraps that in a plain ConnectionError."""
    return isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)


def away(settings: Settings, error: Exception) -> Unavailable:
    """The error for a server that did not answer, in words that say what to do."""
    if isinstance(error, InvalidResponse):
        return Unfit(
            f"what answers at {settings.shown_url} does not speak Redis's protocol: check SUBLET_REDIS_URL"
        )
    if denied(error):
        return Unavailable(
            f"Redis at {settings.shown_url} refused this client ({error}): check user and password in the URL"
        )
    why = str(error) or type(error).__name__
    if why.startswith(POOL_EMPTY):
        return Busy(
            "all connections to Redis are in use: there is more to do at once than this process has room for"
        )
    secured = settings.redis_url.startswith("rediss") and (
        isinstance(error, TimeoutError) or "WRONG_VERSION_NUMBER" in why
    )
    tls = (
        ", does that port speak TLS (one that does not takes redis:// in place of rediss://)"
        if secured
        else ""
    )
    return Unavailable(
        f"no answer from Redis at {settings.shown_url} ({why}): is it up{tls}, and is SUBLET_REDIS_URL right?"
    )
