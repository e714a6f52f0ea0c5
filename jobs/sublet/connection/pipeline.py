"""Connections to Redis that send many commands without waiting for replies."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis
from redis.exceptions import ConnectionError, InvalidResponse, ResponseError, TimeoutError

Commands = Sequence[tuple[Any, ...]]
OnReply = Callable[[Any], None]
"""Called once, with a command's reply or an exception; not after a cancel by `ClientPipeline.aclose`."""
Request = tuple[tuple[Any, ...], OnReply]

COMMANDS_MAX = 64
POOL_EMPTY = "No connection available"


def is_error_reply(reply: Any) -> bool:
    """Whether `reply` is an error that the server sent. Another exception means that no reply arrived."""
    return isinstance(reply, ResponseError)


class Pipeline(asyncio.Protocol):
    """One connection, on an event loop. It connects at its first command, and again after a failure.

    When it fails, or is silent for the pool's `socket_timeout` plus `extra` seconds, every pending command
    gets an error. Nothing is sent again.
    """

    def __init__(self, pool: Any, extra: float = 0.0) -> None:
        self._pool = pool
        self._timeout: float = pool.connection_kwargs["socket_timeout"] + extra
        self._connection: Any = None
        self._transport: Any = None
        self._reader: Any = None
        self._unsent: list[Request] = []
        self._pending: deque[OnReply] = deque()
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received_at = 0.0

    def send_if_idle(self, command: tuple[Any, ...], on_reply: OnReply) -> bool:
        """Send a command if the connection is open and no reply is pending; return whether it was sent.
        Raises for an argument that cannot be encoded.
        """
        if self._transport is None or self._pending:
            return False
        packed, loop = hiredis.pack_command(command), asyncio.get_running_loop()
        self._pending.append(on_reply)
        self._received_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._check_timeout)
        self._transport.write(packed)
        return True

    def send(self, requests: Sequence[Request]) -> None:
        """Send commands in one write. Each one's callback gets its reply or an exception."""
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._unsent += requests
            self._connecting = self._connecting or loop.create_task(self._connect())
            return
        if not self._pending:
            self._received_at = loop.time()
        packed = []
        for command, on_reply in requests:
            try:
                packed.append(hiredis.pack_command(command))
                self._pending.append(on_reply)
            except Exception as error:  # noqa: BLE001  # an argument that cannot be encoded
                on_reply(error)
        self._timer = self._timer or loop.call_later(self._timeout, self._check_timeout)
        self._transport.write(b"".join(packed))

    async def _connect(self) -> None:
        try:
            connection = self._pool.make_connection()
            await connection.connect()
            self._reader = hiredis.Reader(
                protocolError=InvalidResponse, replyError=connection._parser.parse_error
            )
            self._connection, self._transport = connection, connection._writer.transport
            self._transport.set_protocol(self)
        except Exception as error:  # noqa: BLE001  # callers wait for it
            self.fail(error)
        self._connecting = None
        unsent, self._unsent = self._unsent, []
        if unsent:
            self.send(unsent)

    def data_received(self, data: bytes) -> None:
        """Give replies to the pending commands, in order."""
        self._received_at = asyncio.get_running_loop().time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if not self._pending:
                    raise InvalidResponse("a reply to no command")
                self._pending.popleft()(reply)
        except InvalidResponse as error:
            self.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give every pending command an error."""
        self.fail(ConnectionError(f"the connection was lost ({exc or 'closed by the server'})"))

    def _check_timeout(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        left = self._received_at + self._timeout - loop.time()
        if self._pending and left <= 0:
            self.fail(TimeoutError(f"nothing received for {self._timeout:g} s"))
        elif self._pending:
            self._timer = loop.call_later(left, self._check_timeout)

    def fail(self, error: Exception) -> None:
        """Close the connection, and give every pending or unsent command this error."""
        transport, self._transport = self._transport, None
        if transport:
            # its late callbacks must not reach a new connection
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            # redis-py must not warn
            self._connection._reader = self._connection._writer = None
        pending, self._pending = self._pending, deque()
        unsent, self._unsent = self._unsent, []
        for on_reply in (*pending, *(on_reply for _, on_reply in unsent)):
            on_reply(error)

    async def aclose(self, *, at_once: bool = False) -> None:
        """Wait for a begun attempt to connect and, unless `at_once`, for pending replies; then disconnect."""
        if self._connecting:
            await asyncio.wait([self._connecting])
        if self._pending and not at_once:
            last = asyncio.get_running_loop().create_future()
            self.send([(("PING",), last.set_result)])
            await last
        if self._timer:
            self._timer.cancel()
        self.fail(ConnectionError("closed"))
        await asyncio.sleep(0)  # the loop closes the socket


class ClientPipeline:
    """Sends commands through a given redis-py client, with the methods of `Pipeline`. One batch of commands
    runs at a time.
    """

    def __init__(self, client: Any, commands_max: int = COMMANDS_MAX) -> None:
        self._client, self._commands_max = client, commands_max
        self._lock = asyncio.Lock()
        self._in_flight: set[asyncio.Task[None]] = set()

    def send_if_idle(self, _command: tuple[Any, ...], _on_reply: OnReply) -> bool:
        """Return False: this class sends only batches."""
        return False

    def send(self, requests: Sequence[Request]) -> None:
        """Send commands, up to `commands_max` per round trip. Each callback gets a reply or an exception, unless
        `aclose` cancels them."""
        for i in range(0, len(requests), self._commands_max):
            batch = requests[i : i + self._commands_max]
            task = asyncio.get_running_loop().create_task(self._execute(batch))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def _execute(self, requests: Sequence[Request]) -> None:
        replies: Iterable[Any]
        try:
            async with self._lock, self._client.pipeline(transaction=False) as pipe:
                for command, _ in requests:
                    pipe.execute_command(*command)
                replies = await pipe.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001  # callers wait for it
            replies = [error] * len(requests)
        for (_, on_reply), reply in zip(requests, replies, strict=True):
            on_reply(reply)

    async def aclose(self, *, at_once: bool = False) -> None:
        """Wait for the commands in flight; `at_once`: cancel them. The client stays open."""
        for task in tuple(self._in_flight) if at_once else ():
            task.cancel()
        if self._in_flight:
            await asyncio.wait(tuple(self._in_flight))


def resolve(future: "asyncio.Future[Any]", reply: Any) -> None:
    """Set a future's result or exception, unless the future is done."""
    if future.done():
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)


class SyncPipeline:
    """Connections for code without an event loop: one for each waiting thread, at most the pool's
    `max_connections`.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._reset()

    def _reset(self) -> None:
        self._permits = threading.Semaphore(self._pool.max_connections)
        self._idle: list[Any] = []
        self._process = os.getpid()  # set last: until then, other threads of a forked process reset it, too

    def execute(self, command: tuple[Any, ...]) -> Any:
        """Send a command and return its reply. Raises redis-py's errors."""
        packed = hiredis.pack_command(command)
        permits, idle = self._acquire()
        connection, answered = None, False
        try:
            connection = self._take(idle)
            _drop_if_stale(connection)
            connection.send_packed_command([packed], check_health=False)
            reply = connection.read_response()
            answered = True
            return reply
        except ResponseError:
            answered = True
            raise
        finally:
            _release(connection, answered, permits, idle)

    def execute_all(self, commands: Commands, extra: float = 0.0) -> list[Any]:
        """Send commands; return their replies in order, error replies as exceptions. A reply may take `extra`
        seconds beyond the timeout.
        """
        packed = [hiredis.pack_command(command) for command in commands]
        permits, idle = self._acquire()
        connection, answered = None, False
        try:
            connection = self._take(idle)
            _drop_if_stale(connection)
            connection.send_packed_command(packed, check_health=False)
            replies = [_reply(connection, extra) for _ in packed]
            answered = True
            return replies
        finally:
            _release(connection, answered, permits, idle)

    def _acquire(self) -> tuple[threading.Semaphore, list[Any]]:
        if self._process != os.getpid():  # after a fork, these connections are the parent's
            self._pool.reset()
            self._reset()
        permits, idle = self._permits, self._idle
        if not permits.acquire(timeout=self._pool.timeout):
            raise ConnectionError(POOL_EMPTY)
        return permits, idle

    def _take(self, idle: list[Any]) -> Any:
        try:
            return idle.pop()
        except IndexError:
            return self._pool.make_connection()


def _release(connection: Any, answered: bool, permits: threading.Semaphore, idle: list[Any]) -> None:
    if connection:
        if not answered:  # interrupted: the next command must not read this reply
            connection.disconnect()
        idle.append(connection)
    permits.release()


def _reply(connection: Any, extra: float) -> Any:
    try:
        if extra and connection.socket_timeout:
            return connection.read_response(timeout=connection.socket_timeout + extra)
        return connection.read_response()
    except ResponseError as error:
        return error


def _drop_if_stale(connection: Any) -> None:
    try:
        stale = connection._sock and connection.can_read()
    except (ConnectionError, TimeoutError, OSError):
        stale = True
    if stale:
        connection.disconnect()


class SyncClientPipeline:
    """Sends commands through a given redis-py client, with the methods of `SyncPipeline`."""

    def __init__(self, client: Any) -> None:
        self._pool = client.connection_pool

    def execute(self, command: tuple[Any, ...]) -> Any:
        """Send a command and return its reply. Raises redis-py's errors."""
        (reply,) = self.execute_all((command,))
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def execute_all(self, commands: Commands, extra: float = 0.0) -> list[Any]:
        """Send commands; return their replies in order, error replies as exceptions."""
        connection, answered = self._pool.get_connection(), False
        try:
            for command in commands:
                connection.send_command(*command)
            replies = [_reply(connection, extra) for _ in commands]
            answered = True
            return replies
        finally:
            if not answered:
                connection.disconnect()
            self._pool.release(connection)
