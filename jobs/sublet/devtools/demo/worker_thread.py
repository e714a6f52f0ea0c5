"""The demo's pool of workers, on an event loop in its own thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from sublet.connection.settings import Settings
from sublet.devtools.platform.local_workers import LocalWorkers
from sublet.devtools.platform.reports import Reporter
from sublet.operations.pool import Pool
from sublet.scaling.invokers.process import Spawned
from sublet.store.store import Store

READY_SECONDS = 30.0
STOP_SECONDS = 4.0
"""For workers to release their jobs."""
GONE_SECONDS = 10.0
"""For killed workers to end."""


class WorkerThread:
    """The pool of one queue and the invoker that starts its workers.

    This thread calls `on_line` with the process id and each printed line, and `on_end` with the process id
    and the exit code.
    """

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        lease: float,
        on_line: Callable[[int, str], None],
        on_end: Callable[[int, int], None],
    ) -> None:
        self._settings, self._pool, self._lease = settings, pool, lease
        self._on_line, self._on_end = on_line, on_end
        self._thread = threading.Thread(target=self._run, name="demo-workers", daemon=True)
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._workers: LocalWorkers | None = None
        self.error: BaseException | None = None
        """The exception that ended the thread, if any."""

    def open(self) -> None:
        """Create the pool and start the thread. Raises JobsError."""
        self._thread.start()
        self._ready.result(READY_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._run_workers())
        except BaseException as error:  # noqa: BLE001  `open` or the next `read_events` raises it
            self.error = error
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _run_workers(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = self._settings
        workers = self._workers = LocalWorkers(
            Store(settings),
            "sublet.devtools.demo.tasks:app",
            self._pool,
            Reporter(lambda event: None),
            lease=self._lease,
            env={"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace},
            on_line=self._forward_line,
            on_end=self._on_end,
        )
        try:
            await workers.store.prepare()
            await workers.pool.put(self._pool.queues)
            self._ready.set_result(None)
            over = asyncio.create_task(self._over.wait())
            tasks = [over, *map(asyncio.create_task, workers.loops())]
            done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for task in done:
                task.result()
        finally:
            await workers.aclose()

    def _forward_line(self, worker: Spawned, line: str) -> None:
        self._on_line(worker.pid, line)

    def close(self) -> None:
        """Stop all workers, and kill slow ones. If interrupted, kill the others at once."""
        try:
            self._call(self._over.set)
            self._thread.join(STOP_SECONDS)
        finally:
            if self._workers and self._thread.is_alive():
                self._call(self._workers.kill)
                self._thread.join(GONE_SECONDS)

    def _call(self, function: Callable[[], object]) -> None:
        if self._loop:
            # RuntimeError: the loop is already closed
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)
