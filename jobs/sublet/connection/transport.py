"""Send calls and plans to Redis, repeat those without a reply, raise the errors of `sublet.errors`.

A call is repeated byte for byte: a script gives a repeated request its first answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
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

from sublet.connection.pipeline import (
    POOL_EMPTY,
    ClientPipeline,
    Commands,
    Pipeline,
    Request,
    SyncClientPipeline,
    SyncPipeline,
    resolve,
)
from sublet.connection.settings import Settings, connect, connect_sync
from sublet.connection.wait_barrier import WaitBatcher, barriers, outcome
from sublet.errors import Busy, Invalid, JobsError, Unavailable, Unfit
from sublet.protocol.scripts import Call, refusal

R = TypeVar("R")
T = TypeVar("T")

PAUSES = (0.05, 0.2)

SHARED = (("INFO", "memory"), ("CONFIG", "GET", "append[of]*"), ("COMMAND INFO", "waitaof"))
"""Commands that read a server's state. Callers at the same time share one reply."""

_NO_ANSWER = (ConnectionError, TimeoutError, InvalidResponse, OSError)
_STRIPPED = {
    OutOfMemoryError: "OOM ", ReadOnlyError: "READONLY ", NoPermissionError: "NOPERM ", MovedError: "MOVED ", AskError: "ASK ",
    TryAgainError: "TRYAGAIN ", ClusterDownError: "CLUSTERDOWN ", MasterDownError: "MASTERDOWN ",
}  # fmt: skip


class Transport:
    """Sends calls to one server, on an event loop.

    Scripts sent in one turn of the loop share a round trip (the first may go alone). A given `client` sends
    everything itself; `aclose` closes it.
    """

    def __init__(self, settings: Settings, client: "redis.asyncio.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect(settings)
        self._pipeline = (
            ClientPipeline(self.client)
            if client or settings.client_factory
            else Pipeline(self.client.connection_pool)
        )
        self._wait_batchers: dict[Commands, WaitBatcher] = {}
        self._unsent: list[Request] = []
        self._reads: set[asyncio.Future[Any]] = set()
        self._shared_reads: dict[Commands, asyncio.Future[Any]] = {}

    async def run(self, call: Call[T]) -> T:
        """Send a call, up to three times while no reply arrives; return its parsed reply. Raises Refused,
        Invalid, Unavailable.
        """
        until = time.monotonic() + self.settings.patience
        for pause in (*PAUSES, None):
            try:
                if call.waits or not call.text:
                    return call.read(await self._other(call))
                try:
                    reply = await self._execute(call.commands[0])
                except NoScriptError:
                    reply = await self._execute(call.with_text())
                return call.read(reply)
            except _NO_ANSWER as error:
                if pause is None or time.monotonic() > until or denied(error):
                    raise unavailable(self.settings, error) from error
                await asyncio.sleep(pause)
            except ResponseError as error:
                raise refused(error) from error
            except UnicodeEncodeError as error:
                raise Invalid(
                    f"{error.object[:80]!r} is not valid Unicode: remove its unpaired surrogate"
                ) from None
        raise AssertionError("unreachable")

    async def _other(self, call: Call[Any]) -> Any:
        if call.waits:
            return await self._wait(call)
        return await (self._execute_all(call.commands) if call.raw else self._read(call))

    async def _wait(self, call: Call[Any]) -> Any:
        batcher = self._wait_batchers.get(call.waits)
        if batcher is None:
            pipeline: Pipeline | ClientPipeline
            if isinstance(self._pipeline, ClientPipeline):
                pipeline = ClientPipeline(
                    self.client, commands_max=1 << 30
                )  # scripts and waits stay together
            else:
                pipeline = Pipeline(self.client.connection_pool, waiting(call))
            batcher = self._wait_batchers[call.waits] = WaitBatcher(pipeline, call.waits)
        try:
            return await batcher.send(call.commands)
        except NoScriptError:
            return await batcher.send(with_texts(call))

    def _execute(self, command: tuple[Any, ...]) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        on_reply = partial(resolve, future)
        if not self._unsent and self._pipeline.send_if_idle(command, on_reply):
            return future
        self._unsent.append((command, on_reply))
        if len(self._unsent) == 1:
            loop.call_soon(self._flush)
        return future

    async def _execute_all(self, commands: Commands) -> list[Any]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in commands]
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent += zip(commands, (partial(resolve, future) for future in futures), strict=True)
        return await asyncio.gather(*futures)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._pipeline.send(unsent)

    async def _read(self, call: Call[Any]) -> Any:
        # A task: redis-py may swallow a cancellation before Python 3.12.
        reading = self._shared_reads.get(call.commands)
        if reading is None or reading.done():
            reading = asyncio.ensure_future(self._pipe(call.commands))
            self._reads.add(reading)
            reading.add_done_callback(self._read_done)
            if call.commands[-1] in SHARED:
                self._shared_reads[call.commands] = reading
        return await asyncio.shield(reading)

    def _read_done(self, reading: "asyncio.Future[Any]") -> None:
        self._reads.discard(reading)
        if not reading.cancelled():
            reading.exception()  # its caller may have been cancelled

    async def _pipe(self, commands: Sequence[tuple[Any, ...]]) -> Any:
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Any] = await pipe.execute()
            return replies if len(commands) > 1 else replies[0]

    async def aclose(self) -> None:
        """Wait for the calls in flight, and close the connections."""
        if self._reads:
            await asyncio.wait(self._reads)
        for batcher in self._wait_batchers.values():
            await batcher.aclose()
        await self._pipeline.aclose()
        await self.client.aclose()


def waiting(call: Call[Any]) -> float:
    """Return for how many seconds a call's WAIT or WAITAOF may block."""
    return sum(wait[-1] / 1000 for wait in call.waits if isinstance(wait[-1], int))


def with_texts(call: Call[Any]) -> Commands:
    """Return a call's commands as EVAL with the scripts' text, for a server without the scripts."""
    return [("EVAL", call.text, *rest) for _, _, *rest in call.commands]


class SyncTransport:
    """Sends calls to one server, without an event loop."""

    def __init__(self, settings: Settings, client: "redis.Redis | None" = None) -> None:
        self.settings = settings
        self.client: Any = client or connect_sync(settings)
        self._pipeline = (
            SyncClientPipeline(self.client)
            if client or settings.client_factory
            else SyncPipeline(self.client.connection_pool)
        )

    def run(self, call: Call[T]) -> T:
        """Send a call as `Transport.run`; return its parsed reply. Raises Refused, Invalid, Unavailable."""
        until = time.monotonic() + self.settings.patience
        for pause in (*PAUSES, None):
            try:
                return call.read(self._reply(call))
            except _NO_ANSWER as error:
                if pause is None or time.monotonic() > until or denied(error):
                    raise unavailable(self.settings, error) from error
                time.sleep(pause)
            except ResponseError as error:
                raise refused(error) from error
            except UnicodeEncodeError as error:
                raise Invalid(
                    f"{error.object[:80]!r} is not valid Unicode: remove its unpaired surrogate"
                ) from None
        raise AssertionError("unreachable")

    def _reply(self, call: Call[Any]) -> Any:
        if call.raw:
            replies = self._pipeline.execute_all(call.commands)
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise reply
            return replies
        if not call.text:
            with self.client.pipeline(transaction=False) as pipe:
                for command in call.commands:
                    pipe.execute_command(*command)
                replies = pipe.execute()
                return replies if len(replies) > 1 else replies[0]
        if call.waits:
            return self._wait(call)
        try:
            return self._pipeline.execute(call.commands[0])
        except NoScriptError:
            return self._pipeline.execute(call.with_text())

    def _wait(self, call: Call[Any]) -> Any:
        for scripts in (call.commands, with_texts(call)):
            replies = self._pipeline.execute_all([*scripts, *barriers(scripts), *call.waits], waiting(call))
            found = outcome(replies[: len(scripts)], replies[len(scripts) :], len(call.waits))
            if not isinstance(found, NoScriptError):
                break
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


def refused(error: ResponseError) -> Exception:
    """Return the exception for an error reply; one with an unknown code, which is a bug, unchanged."""
    return refusal(_STRIPPED.get(type(error), "") + str(error)) or error


def denied(error: Exception) -> bool:
    """Whether Redis refused the user or password."""
    return isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)


def unavailable(settings: Settings, error: Exception) -> Unavailable:
    """Return the error for a call without a reply: Unavailable, Unfit or Busy."""
    if isinstance(error, InvalidResponse):
        return Unfit(
            f"the server at {settings.shown_url} does not speak Redis's protocol: check SUBLET_REDIS_URL"
        )
    if denied(error):
        return Unavailable(
            f"Redis at {settings.shown_url} refused this client ({error}): check user and password in the URL",
            lasting=True,
        )
    why = str(error) or type(error).__name__
    if why.startswith(POOL_EMPTY):
        return Busy(
            "all connections to Redis are in use: make fewer calls at once in this process, or start more processes"
        )
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return Unavailable(
            f"the certificate of Redis at {settings.shown_url} is not trusted ({why}): use the host name that it is for, "
            "and name its authority in SUBLET_REDIS_URL, ?ssl_ca_certs=/path/ca.pem",
            lasting=True,
        )
    secured = settings.redis_url.startswith("rediss") and (
        isinstance(error, TimeoutError) or "WRONG_VERSION_NUMBER" in why
    )
    tls = ", does that port speak TLS (if not, use redis:// instead of rediss://)" if secured else ""
    return Unavailable(
        f"no answer from Redis at {settings.shown_url} ({why}): is it up{tls}, and is SUBLET_REDIS_URL right?",
        lasting="WRONG_VERSION_NUMBER" in why,
    )


async def follow(run: Callable[[R], Awaitable[Any]], plan: Generator[R, Any, T]) -> T:
    """Run a plan: send each call that it yields by `run`, and return its result. A JobsError of `run` is
    raised inside of the plan.
    """
    answer, failure = None, None
    while True:
        try:
            request = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = await run(request), None
        except JobsError as error:
            failure = error


def follow_sync(run: Callable[[R], Any], plan: Generator[R, Any, T]) -> T:
    """Run a plan without an event loop, and return its result, as `follow`."""
    answer, failure = None, None
    while True:
        try:
            request = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = run(request), None
        except JobsError as error:
            failure = error
