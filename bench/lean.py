"""The client of `over_http.py`, in a process of its own: it writes prepared bytes, so that the server is
the bottleneck.
"""

import asyncio
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 60.0
CLAIM = 100
JOB = {"task": "noop", "queue": "bench", "payload": {"text": "x" * 180}}


class Connection(asyncio.Protocol):
    """One connection to the server. Calls `told` with the status and body of each response."""

    def __init__(self, told: Callable[["Connection", int, bytes], None]) -> None:
        self.told, self.began, self.note = told, 0.0, ""
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, request: bytes) -> None:
        """Send one request; the next one may follow after its response."""
        self.began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._buffer.find(b"Content-Length: ", 0, end)
        length = int(self._buffer[at + 16 : self._buffer.find(b"\r", at)]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        status, body = int(self._buffer[9:12]), self._buffer[end + 4 : end + 4 + length]
        self._buffer = b""
        self.told(self, status, body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Do nothing; the phase then fails by its time limit."""


class Client:
    """Runs one phase against a URL. `spec`: URL, phase, number of jobs and connections."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.left = spec, spec["jobs"]
        self.parts = urlsplit(spec["url"])
        self.taken: list[float] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connections: list[Connection] = []

    def request(self, path: str, body: Any) -> bytes:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.parts.netloc}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    async def connect(
        self, told: Callable[[Connection, int, bytes], None], n: int | None = None
    ) -> list[Connection]:
        loop, made = asyncio.get_running_loop(), list[Connection]()
        for _ in range(self.spec["connections"] if n is None else n):
            _, connection = await loop.create_connection(
                lambda: Connection(told), self.parts.hostname, self.parts.port
            )
            made.append(connection)
        self.connections += made
        return made

    async def until_over(self, began: float) -> dict[str, float]:
        async with asyncio.timeout(PATIENCE):
            await self.over
        return _spread(self.taken) | {"seconds": time.perf_counter() - began}

    async def closed(self, path: str, body: Any, size: int) -> dict[str, float]:
        """Send a request on each connection, and the next one after its response, until all jobs are
        submitted.
        """
        request = self.request(path, body)

        def told(connection: Connection, status: int, said: bytes) -> None:
            assert status in (200, 201), said
            self.taken.append(time.perf_counter() - connection.began)
            if self.left > 0:
                self.left -= size
                connection.ask(request)
            elif len(self.taken) * size >= self.spec["jobs"] and not self.over.done():
                self.over.set_result(None)

        connections, began = await self.connect(told), time.perf_counter()
        for connection in connections:
            if self.left > 0:
                self.left -= size
                connection.ask(request)
        return await self.until_over(began)

    async def open(self) -> dict[str, float]:
        """Submit jobs at fixed times. The wait for a free connection counts."""
        request, jobs, rate = self.request("/jobs", JOB), self.spec["jobs"], self.spec["rate"]
        due: deque[float] = deque()

        def told(connection: Connection, status: int, said: bytes) -> None:
            assert status == 201, said
            self.taken.append(time.perf_counter() - connection.began)
            free.append(connection)
            send()
            if len(self.taken) == jobs:
                self.over.set_result(None)

        def send() -> None:
            while free and due:
                connection = free.pop()
                connection.ask(request)
                connection.began = due.popleft()

        free = await self.connect(told)
        began = time.perf_counter()
        sent = 0
        while sent < jobs:
            until = min(jobs, int((time.perf_counter() - began) * rate) + 1)
            due.extend(began + i / rate for i in range(sent, until))
            sent = max(sent, until)
            send()
            await asyncio.sleep(0.0005)
        return await self.until_over(began)

    async def drain(self) -> dict[str, float]:
        claim = self.request("/jobs/claim", {"queues": ["bench"], "n": CLAIM, "worker": "bench"})
        done = 0

        def told(connection: Connection, status: int, said: bytes) -> None:
            nonlocal done
            if status == 204:
                self.left -= 1
                if self.left == 0:
                    self.over.set_result(None)
                return
            assert status == 200, said
            self.taken.append(time.perf_counter() - connection.began)
            if connection.note == "complete":
                connection.note = ""
                connection.ask(claim)
                return
            jobs = json.loads(said)["jobs"]
            done += len(jobs)
            connection.note = "complete"
            ends = [{"id": job["id"], "token": job["token"], "result": "a result"} for job in jobs]
            connection.ask(self.request("/jobs/complete", {"jobs": ends}))

        self.left = self.spec["connections"]
        connections, began = await self.connect(told), time.perf_counter()
        for connection in connections:
            connection.ask(claim)
        found = await self.until_over(began)
        assert done == self.spec["jobs"], (done, self.spec["jobs"])
        return found

    async def wait(self) -> dict[str, float]:
        """Let many claims wait, and submit one job at a time. Measures how soon a claim gets it."""
        claim = self.request("/jobs/claim", {"queues": ["poll"], "worker": "poller", "wait": 20})
        answered: asyncio.Queue[float] = asyncio.Queue()

        def told(connection: Connection, status: int, said: bytes) -> None:
            if status == 200:
                answered.put_nowait(time.perf_counter())
            connection.ask(claim)

        submitted: asyncio.Queue[float] = asyncio.Queue()
        (submitter,) = await self.connect(lambda *_: submitted.put_nowait(time.perf_counter()), 1)
        for connection in await self.connect(told):
            connection.ask(claim)
        await asyncio.sleep(2.0)
        print("waiting", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        after = []
        for _ in range(self.spec["jobs"]):
            submitter.ask(self.request("/jobs", JOB | {"queue": "poll"}))
            async with asyncio.timeout(PATIENCE):
                there, known = await answered.get(), await submitted.get()
            self.taken.append(there - submitter.began)
            after.append(max(0.0, there - known))
            await asyncio.sleep(0.01)
        return _spread(self.taken) | {f"after_{name}": value for name, value in _spread(after).items()}


def _spread(taken: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles([seconds * 1000 for seconds in taken], n=100, method="inclusive")
    return {"ms_p50": cuts[49], "ms_p99": cuts[98]}


async def _client(spec: dict[str, Any]) -> dict[str, float]:
    client, size = Client(spec), spec.get("size", 1)
    phases: dict[str, Callable[[], Any]] = {
        "submit": lambda: client.closed("/jobs", JOB, 1),
        "batch": lambda: client.closed("/jobs/batch", {"jobs": [JOB] * size}, size),
        "open": client.open,
        "drain": client.drain,
        "wait": client.wait,
    }
    found: dict[str, float] = await phases[spec["phase"]]()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_client(json.loads(sys.stdin.readline())))))
