"""A proxy on loopback that loses, repeats and delays the requests of clients to a real server.

It parses Redis's protocol, so it separates the commands of a packet and passes a handshake. Predicates
select the commands for a `Fault`. It records the requests and the server's replies.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote

import hiredis
from redis.connection import parse_url

from sublet.connection.settings import Settings
from sublet.protocol.scripts import script

SECONDS = 10.0
"""The time limit of a call to the proxy's thread."""
LIMIT = 10_000
"""The number of recorded requests."""


class Fault(StrEnum):
    """A fault of one request."""

    LOSE_REQUEST = "the server does not receive it, and the connection is closed"
    LOSE_REPLY = "the server runs it, and the connection is closed before the reply"
    SILENCE = "the server runs it, but sends nothing back; the connection stays open"
    CUT = "the server runs it, and the connection is closed in the middle of the reply"
    TWICE = "the server receives it twice, the client gets the first reply"
    TWICE_SECOND = "the server receives it twice, the client gets the second reply"
    LATE = "the connection is closed; the request arrives at `deliver`"
    HOLD = "the request waits until `release`, then is passed on"


@dataclass
class Request:
    """One command of a client, with each reply of the server."""

    words: tuple[bytes, ...]
    raw: bytes
    replies: list[bytes] = field(default_factory=list)


When = Callable[[Request], bool]


class Side(NamedTuple):
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def is_script(request: Request) -> bool:
    """Whether it calls a script."""
    return request.words[0].upper() in (b"EVALSHA", b"EVAL")


def of(verb: str) -> When:
    """A predicate: whether a request calls this verb's script."""
    ours = script(verb)
    names = (ours.sha.encode(), ours.text.encode())
    return lambda request: is_script(request) and request.words[1] in names


class Proxy:
    """Listens on a port until `close`. `settings` connect a client to it."""

    def __init__(self, settings: Settings) -> None:
        self.requests: deque[Request] = deque(maxlen=LIMIT)
        self.decide: Callable[[Request], Fault | None] = self._planned
        self._target: dict[str, Any] = parse_url(settings.redis_url)  # type: ignore[no-untyped-call]  # redis-py's own
        self._plans: list[tuple[Fault, When]] = []
        self._late: list[tuple[Request, Side]] = []
        self._serving: set[asyncio.Task[Any]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(SECONDS)
        who = ":".join(quote(self._target.get(name, "")) for name in ("username", "password"))
        url = f"redis://{who}@127.0.0.1:{self._port}/{self._target.get('db', 0)}"
        self.settings = Settings(redis_url=url, namespace=settings.namespace)

    def next(self, fault: Fault, when: When = is_script, times: int = 1) -> None:
        """Apply a fault to the next `times` matching commands, after earlier plans."""
        self._plans += [(fault, when)] * times

    def sent(self, when: When = is_script) -> int:
        """The number of matching commands that clients sent."""
        return sum(when(request) for request in list(self.requests))

    def ran(self, when: When = is_script) -> int:
        """The number of times that the server ran a matching command."""
        return sum(len(request.replies) for request in list(self.requests) if when(request))

    def release(self) -> None:
        """Release the held requests."""
        self._loop.call_soon_threadsafe(self._released.set)

    def deliver(self) -> list[Any]:
        """Deliver the late requests. Return the server's replies."""
        return [self._parse(raw) for raw in self._do(self._deliver())]

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _run(self) -> None:
        self._loop, self._over, self._released = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for _, side in self._late:
            side.writer.close()

    async def _open(self) -> Side:
        if "path" in self._target:
            return Side(*await asyncio.open_unix_connection(self._target["path"]))
        return Side(*await asyncio.open_connection(self._target["host"], self._target.get("port", 6379)))

    async def _serve(self, *ends: Any) -> None:
        client, task = Side(*ends), asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        server = None
        try:
            server = await self._open()
            with contextlib.suppress(
                OSError, EOFError, asyncio.CancelledError
            ):  # an end was closed, or the proxy closes
                while await self._pass(await self._read(client), client, server):
                    pass
        finally:
            client.writer.close()
            if server and all(server is not side for _, side in self._late):
                server.writer.close()

    async def _read(self, client: Side) -> Request:
        request = await read_request(client.reader)
        self.requests.append(request)
        return request

    def _planned(self, request: Request) -> Fault | None:
        for i, (fault, when) in enumerate(self._plans):
            if when(request):
                del self._plans[i]
                return fault
        return None

    async def _pass(self, request: Request, client: Side, server: Side) -> bool:
        """Handle one request. Return False if the connection has ended."""
        fault = self.decide(request)
        if fault is Fault.LOSE_REQUEST:
            return False
        if fault is Fault.LATE:
            self._late.append((request, server))
            return False
        if fault is Fault.HOLD:
            await self._released.wait()
        for _ in range(2 if fault in (Fault.TWICE, Fault.TWICE_SECOND) else 1):
            await self._ask(request, server)
        reply = request.replies[-1 if fault is Fault.TWICE_SECOND else 0]
        if fault is Fault.LOSE_REPLY:
            return False
        if fault is Fault.SILENCE:
            await client.reader.read()  # until the client closes it
            return False
        client.writer.write(reply[: len(reply) // 2] if fault is Fault.CUT else reply)
        await client.writer.drain()
        if request.words[0].upper() == b"SUBSCRIBE":
            await self._splice(client, server)
        return fault is not Fault.CUT

    async def _ask(self, request: Request, server: Side) -> None:
        server.writer.write(request.raw)
        request.replies.append(await read_reply(server.reader))

    async def _splice(self, client: Side, server: Side) -> None:
        """After SUBSCRIBE the server sends at any time: pass on both directions."""
        pumps = [asyncio.ensure_future(pump(*ends)) for ends in ((client, server), (server, client))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _deliver(self) -> list[bytes]:
        late, self._late = self._late, []
        for request, server in late:
            await self._ask(request, server)
            server.writer.close()
        return [request.replies[-1] for request, _ in late]

    def _parse(self, raw: bytes) -> Any:
        reader = hiredis.Reader()
        reader.feed(raw)
        return reader.gets()


async def pump(source: Side, sink: Side) -> None:
    """Pass on bytes until their source ends."""
    while data := await source.reader.read(1 << 16):
        sink.writer.write(data)
        await sink.writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read the next command of a client. Raises EOFError."""
    raw = await read_reply(reader)
    whole = hiredis.Reader()
    whole.feed(raw)
    return Request(tuple(whole.gets()), raw)


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    """Read the bytes of one value of RESP2 or RESP3. Raises EOFError."""
    head = await reader.readline()
    if not head.endswith(b"\n"):
        raise EOFError
    kind, size = head[:1], head[1:-2]
    if kind in b"$=!" and size != b"-1":
        return head + await reader.readexactly(int(size) + 2)
    if kind in b"*~>%" and size != b"-1":
        values = int(size) * (2 if kind == b"%" else 1)
        return head + b"".join([await read_reply(reader) for _ in range(values)])
    return head
