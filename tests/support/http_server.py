"""The HTTP server for tests, in this process or as a process of its own; and HTTP as raw bytes, for requests
that no client sends.

    async with serving(settings) as url: ...                      # on this loop; tokens="ci:submit:<secret>" for tokens
    with serve_process(settings, tokens="…") as server: ...       # `sublet serve`: server.url, server.pid, server.output()
"""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet_functions.http.auth import Tokens
from sublet_functions.http.limits import Limits
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response
from sublet_functions.serve import Stop, serve
from sublet_functions.server.server import HttpServer
from sublet_functions.server.sockets import listen, url_of
from tests.support.paths import PYTHONPATH
from tests.support.processes import plain_environment, until

SECONDS = 30.0
"""How long a test waits for an expected event, in seconds."""
SECRET = "s3cret-s3cret-s3cret"
ADMIN = f"boss:admin:{SECRET}"
"""A token with every role, for tests in which roles do not matter."""


@contextlib.asynccontextmanager
async def serving(
    settings: Settings,
    *,
    tokens: str | Tokens = "",
    limits: Limits | None = None,
    stop: Stop | None = None,
    **more: Any,
) -> AsyncIterator[str]:
    """Serve the API on this loop and a free port; gives its URL. `stop.ask()` ends it sooner.

    `more` configures the worker function: a `workshop`, `secrets`.
    """
    stop = stop or Stop()
    up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    valid = Tokens(tokens) if isinstance(tokens, str) else tokens
    task = asyncio.create_task(
        serve(settings, "127.0.0.1", 0, valid, up.set_result, limits=limits, stop=stop, **more)
    )
    try:
        async with asyncio.timeout(SECONDS):
            await asyncio.wait([task, up], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        yield up.result()
    finally:
        stop.asked.set()
        async with asyncio.timeout(SECONDS):
            await task


@contextlib.asynccontextmanager
async def fronting(core: Any, limits: Limits | None = None) -> AsyncIterator[tuple[HttpServer, str]]:
    """Serve another core behind the real connections: anything with `async def answer(request)`. Gives the
    server and its URL.
    """
    front, hurried = HttpServer(core, limits or Limits()), asyncio.Event()
    (one,) = listen("127.0.0.1", 0, loopback_only=True)
    await front.start([one])
    try:
        yield front, url_of("127.0.0.1", one)
    finally:
        hurried.set()
        async with asyncio.timeout(SECONDS):
            await front.stop(0, hurried)
        one.close()


class Held:
    """A core for `fronting` that holds its answer back until `go`, and records what happens to it."""

    def __init__(self, body: bytes = b"taken", *, stubborn: bool = False) -> None:
        self.body, self.stubborn = body, stubborn
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.notes: list[str] = []

    async def answer(self, request: Request) -> Response:
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            if not self.stubborn:
                raise
        return Response(200, self.body, on_unsent=self.undo)

    async def undo(self) -> None:
        self.notes.append("undone")


@dataclass
class Served:
    """A server that is a process: its first line, and its output since then."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    url: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        """Its output so far, stdout and stderr."""
        return (self.folder / "out").read_text() + (self.folder / "err").read_text()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; returns its exit code."""
        return self.process.wait(SECONDS)

    def stop(self) -> int:
        """Stop it and wait for its end; returns its exit code."""
        self.signal()
        return self.wait()


@contextlib.contextmanager
def serve_process(settings: Settings, *words: str, tokens: str = "", **env: str) -> Iterator[Served]:
    """Run `sublet serve` on a free port until the end of the block. `words` are further arguments, `env`
    further variables.
    """
    with (
        tempfile.TemporaryDirectory() as place,
        spawn(settings, Path(place), "--json", *words, tokens=tokens, **env) as server,
    ):
        until(
            lambda: (Path(place) / "out").read_text().endswith("\n") or server.process.poll() is not None,
            server.output,
        )
        assert server.process.poll() is None, server.output()
        server.url = json.loads((Path(place) / "out").read_text())["url"]
        yield server


def refuses(url: str) -> bool:
    """Whether nothing accepts connections at a URL of this machine."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 1),
    ):
        return False
    return True


@contextlib.contextmanager
def spawn(settings: Settings, folder: Path, *words: str, tokens: str = "", **env: str) -> Iterator[Served]:
    """The same, without waiting until it listens."""
    clean = plain_environment()
    clean |= {
        "PYTHONPATH": PYTHONPATH,
        "SUBLET_REDIS_URL": settings.redis_url,
        "SUBLET_NAMESPACE": settings.namespace,
    }
    clean |= {"SUBLET_PORT": "0"} | ({"SUBLET_TOKENS": tokens} if tokens else {}) | env
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "sublet", "serve", *words], cwd=folder, env=clean, stdout=out, stderr=err
        )
    server = Served(process, folder)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(SECONDS)


@dataclass
class Answer:
    """One answer as received: status, headers by lower-case name, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def places(self) -> list[str]:
        """The locations of a problem's errors: pointers, and names of parameters and headers. Fails for other members."""
        errors = self.json()["errors"]
        assert all(len(error) == 2 and error.pop("detail") for error in errors), errors
        return [next(iter(error.values())) for error in errors]

    @property
    def problem(self) -> str:
        """The last part of a problem's type. Fails for an answer that is not a problem document."""
        assert self.headers["content-type"] == "application/problem+json", (
            self.status,
            self.headers,
            self.body,
        )
        problem = self.json()
        assert problem["status"] == self.status
        assert problem["title"]
        return str(problem["type"]).removeprefix("urn:sublet:problem:")


class Wire:
    """A raw connection: bytes are sent as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, url: str, limit: int = 2**20) -> "Wire":
        """Connect to a server."""
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, limit=limit))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)

    async def answer(self, method: str = "GET") -> Answer:
        """Read the next answer."""
        async with asyncio.timeout(SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(head[0].split()[1])
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            return Answer(status, headers, await self._body(method, status, headers))

    async def _body(self, method: str, status: int, headers: dict[str, str]) -> bytes:
        if method == "HEAD" or status in (100, 204, 304):
            return b""
        if headers.get("transfer-encoding") != "chunked":
            return (
                await self.reader.readexactly(int(headers["content-length"]))
                if "content-length" in headers
                else await self.rest()
            )
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return body

    async def rest(self) -> bytes:
        """Read until the server closes."""
        async with asyncio.timeout(SECONDS):
            return await self.reader.read(-1)

    async def is_closed(self) -> bool:
        """Wait until the server closes; fails if it sends anything before."""
        with contextlib.suppress(ConnectionError):
            return await self.rest() == b""
        return True

    def close(self, *, rudely: bool = False) -> None:
        """Close the connection; with `rudely` by a reset."""
        if rudely:
            self.writer.transport.abort()
        self.writer.close()


@contextlib.asynccontextmanager
async def wire(url: str) -> AsyncIterator[Wire]:
    """Open a raw connection to a server."""
    one = await Wire.open(url)
    try:
        yield one
    finally:
        one.close()


async def ask(
    url: str, method: str, path: str, body: Any = None, *, token: str = "", **headers: str
) -> Answer:
    """Send one request on a connection of its own. A body that is not bytes is sent as JSON;
    `idempotency_key=…` is a header.
    """
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(url).netloc}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"Authorization: Bearer {token}"] if token else []
    if body is not None:
        lines += [f"Content-Length: {len(data)}"] + (
            [] if "content_type" in headers else ["Content-Type: application/json"]
        )
    async with wire(url) as one:
        one.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        return await one.answer(method)
