"""Runs workers in a server process, started by `POST /work`."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Literal

from sublet.errors import Invalid, JobsError
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import encode
from sublet_functions.schemas.responses import WorkSummary
from sublet_functions.schemas.triggers import Summons

if TYPE_CHECKING:
    from sublet.app import App
    from sublet.model import Lease
    from sublet.worker.summary import Summary
    from sublet.worker.worker import Worker

log = logging.getLogger(__name__)

SECONDS = 55.0
"""How many seconds a worker may run without SUBLET_WORK_SECONDS: gateways cut requests at 60 s."""
GRACE = 5.0
"""Most seconds that running jobs have when the server stops; then they are released."""
RELEASE_SECONDS = 1.0
"""How many seconds before the end of `finish` the jobs that still run are released."""
KEEP_ALIVE = 15.0
"""Seconds between two line breaks in a response, which keep it open while the worker runs."""
ABORT_SECONDS = 4.0
"""Most seconds that `aclose` gives workers to release their jobs."""
CANCEL_SECONDS = 1.0
LOG_INTERVAL = 60.0

_logged_at: dict[int, float] = {}


def log_refusal(status: int, reason: str) -> None:
    """Log a refused `POST /work`, at most once a minute for each status."""
    now = time.monotonic()
    if now - _logged_at.get(status, float("-inf")) >= LOG_INTERVAL:
        _logged_at[status] = now
        log.warning("POST /work refused with %d (logged at most once a minute): %s", status, reason)


class WorkerRun:
    """One run of a worker in this process."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.task: asyncio.Task[Summary]
        self._worker: Worker | None = None
        self._stopping = False

    def attach(self, worker: Worker) -> None:
        """Set the worker of this run. If `stop` was called before, stop it."""
        self._worker = worker
        if self._stopping:
            worker.stop()

    def on_event(self, event: str, lease: Lease | None, detail: str) -> None:
        """Receive an event of the worker; `ready` ends the wait in `started`."""
        if event == "ready":
            self.ready.set()

    def stop(self) -> None:
        """Make the worker claim no more, and in 5 s release jobs that still run; a second call releases them at
        once.
        """
        self._stopping = True
        if self._worker:
            self._worker.stop()

    async def started(self) -> None:
        """Wait until the worker is ready to claim. Raises the error of a failed start."""
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait([self.task, ready], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if not self.ready.is_set():
            self.task.result()

    async def response_body(self) -> AsyncIterator[bytes]:
        """Yield line breaks while the worker runs, so that gateways keep the connection; then its summary as
        JSON, or raise its error.
        """
        while not self.task.done():
            await asyncio.wait([self.task], timeout=KEEP_ALIVE)
            if not self.task.done():
                yield b"\n"
        summary = self.task.result()
        yield encode({name: getattr(summary, name) for name in WorkSummary.model_fields}) + b"\n"


class WorkerHost:
    """Runs workers of an app in this process: `most` at a time (default: one), each for at most `seconds`."""

    def __init__(self, app: App, *, most: int = 1, seconds: float = SECONDS) -> None:
        self.app = app
        self._most = most
        self.seconds = seconds
        self._runs: set[WorkerRun] = set()
        self._stopped = False
        self._ends = float("inf")  # set by `finish`
        self.stuck = 0
        """How many tasks ignored their cancellation. An orderly exit would wait for them for ever."""

    @property
    def busy(self) -> bool:
        """Whether a worker runs."""
        return bool(self._runs)

    @staticmethod
    def seconds_of(environment: dict[str, str] | None = None) -> float:
        """Return how many seconds a worker may run: SUBLET_WORK_SECONDS, else 55. Raises Invalid unless it is
        1 to 86,400.
        """
        text = (os.environ if environment is None else environment).get("SUBLET_WORK_SECONDS", "")
        try:
            seconds = float(text or SECONDS)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= 86_400:
            raise Invalid(f"SUBLET_WORK_SECONDS={text[:40]!r}: use seconds, 1 to 86400")
        return seconds

    async def start(self, summons: Summons, seconds: float | None) -> WorkerRun:
        """Start a worker, whose time `seconds` may shorten; return its run when it can claim. Raises Problem
        if `most` workers run or the server stops, and the error of a failed start.
        """
        if self._stopped:
            raise Problem("busy", "this server is stopping: send the request to another server")
        if len(self._runs) >= self._most:
            log_refusal(429, f"the limit of workers in this process, {self._most}, is reached")
            raise Problem(
                "at-work",
                f"the limit of workers in this process, {self._most}, is reached: send the request to another server, or later",
            )
        run = WorkerRun()
        run.task = asyncio.create_task(self._run(run, summons, min(seconds or self.seconds, self.seconds)))
        self._runs.add(run)
        run.task.add_done_callback(partial(self._ended, run, summons.pool))
        await run.started()
        return run

    async def _run(self, run: WorkerRun, summons: Summons, seconds: float) -> Summary:
        from sublet_functions.work import work  # a server without an app does not load the worker

        return await work(
            self.app,
            queues=summons.queues or None,
            slots=summons.slots,
            grace=GRACE,
            drain=True,
            linger=summons.linger,
            pool=summons.pool,
            summons=summons.summons,
            seconds=seconds,
            worker_id="",
            report=run.on_event,
            obey=run.attach,
        )

    def _ended(self, run: WorkerRun, pool: str, task: asyncio.Task[Summary]) -> None:
        self._runs.discard(run)
        whose = f" of pool {pool}" if pool else ""
        if task.cancelled():
            log.warning("a worker%s was cancelled: its jobs run again when their leases expire", whose)
        elif (error := task.exception()) is None:
            done = task.result()
            self.stuck += done.stuck
            counts = f"{done.completed:,} completed, {done.failed:,} failed, {done.released:,} released"
            log.info("a worker%s ended after %.1f s: %s", whose, done.seconds, counts)
        elif run.ready.is_set():
            words = f": {error}" if isinstance(error, JobsError) else ""
            log.error("a worker%s failed: %s%s", whose, type(error).__name__, words)

    async def finish(self, seconds: float, hurried: asyncio.Event) -> None:
        """Start no more workers; wait up to `seconds` until the running ones have ended. They release jobs
        after 5 s, or 1 s before the end if that is earlier. Return early if `hurried` is set.
        """
        self._stopped = True
        self._ends = time.monotonic() + seconds
        hurry = asyncio.create_task(hurried.wait())
        try:
            for left in (RELEASE_SECONDS, 0.0):
                self._stop()
                await self._idle_or(hurry, max(0.0, self._ends - time.monotonic() - left))
                if hurry.done():
                    break
        finally:
            hurry.cancel()

    async def _idle_or(self, hurry: asyncio.Task[Literal[True]], seconds: float) -> None:
        if self._runs:
            idle = asyncio.create_task(asyncio.wait([run.task for run in self._runs]))
            await asyncio.wait([idle, hurry], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            idle.cancel()

    async def aclose(self) -> None:
        """End all workers: they have up to 4 s, within the time of `finish`; then they are cancelled."""
        self._stopped = True
        if self._runs:
            self._stop()
            left = min(ABORT_SECONDS, max(0.0, self._ends - time.monotonic()))
            await asyncio.wait([run.task for run in self._runs], timeout=left)
        for run in tuple(self._runs):
            run.task.cancel()
        if self._runs:
            await asyncio.wait([run.task for run in self._runs], timeout=CANCEL_SECONDS)

    def _stop(self) -> None:
        for run in tuple(self._runs):
            run.stop()
