"""One connection to Redis without a client's layers above it: commands go out in turn, and so do their replies come back.

redis-py makes the connection (TLS, unix sockets, user and password are its business) and is not asked again. A call through its
asyncio client passes a pool, a pipeline and a stream, some ten turns of the event loop: half of the time between a submit and
the start of its task, where nothing else is to do.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hiredis
from redis.exceptions import ConnectionError, InvalidResponse, ResponseError, TimeoutError

Commands = Sequence[tuple[Any, ...]]
Ask = tuple[tuple[Any, ...], Callable[[Any], None]]
"""A command, and who is told its reply: at once, or it is told the error that came instead of one."""

PIPELINE = 64
"""Commands that share one round trip through a client."""
POOL_EMPTY = "No connection available"
"""What redis-py says, and so do we, when all connections were in use for too long: Redis has not been asked."""


class Line(asyncio.Protocol):
    """Connects when it is first asked, and again after it broke. What had no answer then is told so; nothing is sent again.

    As long as the pool's `socket_timeout`, and `more` seconds, it may be silent while an answer is owed.
    """

    def __init__(self, pool: Any, more: float = 0.0) -> None:
        self._pool = pool
        self._silence: float = pool.connection_kwargs["socket_timeout"] + more
        self._connection: Any = None
        self._transport: Any = None
        self._reader: Any = None
        self._unsent: list[Ask] = []
        self._owed: deque[Callable[[Any], None]] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._heard_at = 0.0

    @property
    def idle(self) -> bool:
        """Is it open, with nothing under way?"""
        return self._transport is not None and not self._owed

    def send(self, asks: Sequence[Ask]) -> None:
        """Send commands in one go."""
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._unsent += asks
            self._opening = self._opening or loop.create_task(self._open())
            return
        if not self._owed:
            self._heard_at = loop.time()
        packed = []
        for command, tell in asks:
            try:
                packed.append(hiredis.pack_command(command))
                self._owed.append(tell)
            except Exception as error:  # noqa: BLE001  # a word that is none is this command's trouble, and no other's
                tell(error)
        self._alarm = self._alarm or loop.call_later(self._silence, self._look)
        self._transport.write(b"".join(packed))

    async def _open(self) -> None:
        try:
            connection = self._pool.make_connection()
            await connection.connect()
            self._reader = hiredis.Reader(
                protocolError=InvalidResponse, replyError=connection._parser.parse_error
            )
            self._connection, self._transport = connection, connection._writer.transport
            self._transport.set_protocol(self)
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
            self._break(error)
        self._opening = None
        unsent, self._unsent = self._unsent, []
        if unsent:
            self.send(unsent)

    def data_received(self, data: bytes) -> None:
        """Pass replies on."""
        self._heard_at = asyncio.get_running_loop().time()
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if not self._owed:
                    raise InvalidResponse("a reply that nobody has asked for")
                self._owed.popleft()(reply)
        except InvalidResponse as error:
            self._break(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell those who wait that nothing will come."""
        self._break(ConnectionError(f"the connection was lost ({exc or 'closed by the server'})"))

    def _look(self) -> None:
        """Has it been silent for too long?"""
        loop = asyncio.get_running_loop()
        self._alarm = None
        left = self._heard_at + self._silence - loop.time()
        if self._owed and left <= 0:
            self._break(TimeoutError(f"not a word for {self._silence:g} s"))
        elif self._owed:
            self._alarm = loop.call_later(left, self._look)

    def _break(self, error: Exception) -> None:
        transport, self._transport = self._transport, None
        if transport:
            transport.set_protocol(
                asyncio.Protocol()
            )  # its last words come later, when there may be another connection
            transport.abort()
            self._connection._reader = self._connection._writer = (
                None  # it is closed: redis-py must not complain
            )
        owed, self._owed = self._owed, deque()
        unsent, self._unsent = self._unsent, []
        for tell in (*owed, *(tell for _, tell in unsent)):
            tell(error)

    async def aclose(self, *, at_once: bool = False) -> None:
        """Let go of the connection, when all that is owed has come or, if so asked, at once."""
        if self._opening:
            await asyncio.wait([self._opening])
        if self._owed and not at_once:
            last = asyncio.get_running_loop().create_future()
            self.send([(("PING",), last.set_result)])
            await last
        if self._alarm:
            self._alarm.cancel()
        self._break(ConnectionError("closed"))


class Lent:
    """The same through a client that somebody has given: a batch is a pipeline, and they go out in turn."""

    idle = False
    """What comes first may always wait for what comes with it."""

    def __init__(self, client: Any, most: int = PIPELINE) -> None:
        self._client, self._most = client, most
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def send(self, asks: Sequence[Ask]) -> None:
        """Send commands in one go."""
        for i in range(0, len(asks), self._most):
            task = asyncio.get_running_loop().create_task(self._deliver(asks[i : i + self._most]))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _deliver(self, asks: Sequence[Ask]) -> None:
        replies: Iterable[Any]
        try:
            async with self._turn, self._client.pipeline(transaction=False) as pipe:
                for command, _ in asks:
                    pipe.execute_command(*command)
                replies = await pipe.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
            replies = [error] * len(asks)
        for (_, tell), reply in zip(asks, replies, strict=True):
            tell(reply)

    async def aclose(self, *, at_once: bool = False) -> None:
        """Wait for what is under way or, if so asked, cancel it."""
        for task in tuple(self._under_way) if at_once else ():
            task.cancel()
        if self._under_way:
            await asyncio.wait(tuple(self._under_way))


def resolve(future: "asyncio.Future[Any]", reply: Any) -> None:
    """Give a future its reply or error, unless it is done: its caller may have been cancelled."""
    if future.done():
        return
    if isinstance(reply, BaseException):
        future.set_exception(reply)
    else:
        future.set_result(reply)


class SyncLines:
    """For code without an event loop: a connection for each thread that asks, kept for the next; as many as the pool may have.

    They are redis-py's, and the pool's own `disconnect` closes them. What a pool does with each beside that, before and after
    every command, takes a third of a submit's time.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._begin()

    def _begin(self) -> None:
        self._room = threading.Semaphore(self._pool.max_connections)
        self._idle: list[Any] = []
        self._process = os.getpid()  # last: until then, other threads of a forked process see that it is one

    def ask(self, command: tuple[Any, ...]) -> Any:
        """Send a command and read its reply. Raises whatever redis-py raises."""
        packed = hiredis.pack_command(command)
        room, idle = self._enter()
        connection, answered = None, False
        try:
            connection = self._take(idle)
            _mend(connection)
            connection.send_packed_command([packed], check_health=False)
            reply = connection.read_response()
            answered = True
            return reply
        except ResponseError:
            answered = True
            raise
        finally:
            _give(connection, answered, room, idle)

    def ask_all(self, commands: Commands, more: float = 0.0) -> list[Any]:
        """Send commands in one go over one connection, and read their replies, errors among them; `more` seconds for each."""
        packed = [hiredis.pack_command(command) for command in commands]
        room, idle = self._enter()
        connection, answered = None, False
        try:
            connection = self._take(idle)
            _mend(connection)
            connection.send_packed_command(packed, check_health=False)
            replies = [_reply(connection, more) for _ in packed]
            answered = True
            return replies
        finally:
            _give(connection, answered, room, idle)

    def _enter(self) -> tuple[threading.Semaphore, list[Any]]:
        if self._process != os.getpid():  # a fork: what is here is the parent's
            self._pool.reset()
            self._begin()
        room, idle = self._room, self._idle
        if not room.acquire(timeout=self._pool.timeout):
            raise ConnectionError(POOL_EMPTY)
        return room, idle

    def _take(self, idle: list[Any]) -> Any:
        try:
            return idle.pop()
        except IndexError:
            return self._pool.make_connection()


def _give(connection: Any, answered: bool, room: threading.Semaphore, idle: list[Any]) -> None:
    if connection:
        if not answered:  # e.g. a Ctrl-C: the next command must not read this one's reply
            connection.disconnect()
        idle.append(connection)
    room.release()


def _reply(connection: Any, more: float) -> Any:
    try:
        if more and connection.socket_timeout:
            return connection.read_response(timeout=connection.socket_timeout + more)
        return connection.read_response()
    except ResponseError as error:
        return error


def _mend(connection: Any) -> None:
    """Close a connection that is not fit to be used: the server has closed it, or somebody left before the reply."""
    try:
        spoilt = connection._sock and connection.can_read()
    except (ConnectionError, TimeoutError, OSError):
        spoilt = True
    if spoilt:
        connection.disconnect()


class SyncLent:
    """The same through a client that somebody has given."""

    def __init__(self, client: Any) -> None:
        self._pool = client.connection_pool

    def ask(self, command: tuple[Any, ...]) -> Any:
        """Send a command and read its reply. Raises whatever redis-py raises."""
        (reply,) = self.ask_all((command,))
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def ask_all(self, commands: Commands, more: float = 0.0) -> list[Any]:
        """Send commands in one go over one connection, and read their replies, errors among them; `more` seconds for each."""
        connection, answered = self._pool.get_connection(), False
        try:
            for command in commands:
                connection.send_command(*command)
            replies = [_reply(connection, more) for _ in commands]
            answered = True
            return replies
        finally:
            if not answered:
                connection.disconnect()
            self._pool.release(connection)
