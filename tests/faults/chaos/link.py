"""A TCP forwarder between clients and a server, or between a replica and its primary."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

SECONDS = 10.0
"""The time limit of a call to the forwarder's thread."""
CHUNK = 1 << 16


class Link:
    """Forwards a loopback port to the port `target`."""

    def __init__(self, target: int) -> None:
        self._target, self.delay = target, 0.0
        self._open = True
        self._flows = asyncio.Event()
        self._pairs: set[asyncio.Task[None]] = set()
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(started)), name="link", daemon=True
        )
        self._thread.start()
        self.port = started.result(SECONDS)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Close every connection; new ones work."""
        self._do(self._cut())

    def refuse(self) -> None:
        """Close every connection, and each new one at once, until `heal`."""
        self._open = False
        self.cut()

    def hang(self) -> None:
        """Keep connections open without passing data until `heal`, which delivers it late."""
        self._do(self._hang())

    def heal(self) -> None:
        """End all faults."""
        self._open, self.delay = True, 0.0
        self._do(self._let_flow())

    def retarget(self, target: int) -> None:
        """Close every connection, and forward new ones to another port."""
        self._target = target
        self.cut()

    def close(self) -> None:
        """Close every connection and end the thread."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(SECONDS)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _run(self, started: "Future[int]") -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._flows.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._over.wait()
        server.close()
        await self._cut()

    async def _cut(self) -> None:
        pairs = tuple(self._pairs)
        for pair in pairs:
            pair.cancel()
        await asyncio.gather(*pairs, return_exceptions=True)

    async def _hang(self) -> None:
        self._flows.clear()

    async def _let_flow(self) -> None:
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            if self._open:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):  # an end was closed, or `cut`
            pass
        finally:
            self._pairs.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        pumps = [
            asyncio.ensure_future(self._pump(*ends)) for ends in ((reader, far_writer), (far_reader, writer))
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
