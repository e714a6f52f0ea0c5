"""One pool's workers on this machine: summon them when jobs are queued, monitor them, run ticks."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from sublet.devtools.platform.api_service import environment, where
from sublet.devtools.platform.pool import LocalPool
from sublet.devtools.platform.reports import Reporter
from sublet.devtools.platform.worker_monitor import WorkerMonitor
from sublet.errors import JobsError, NoNamespace
from sublet.operations.pool import Pool
from sublet.scaling.invokers.process import PATIENCE, Hear, ProcessInvoker
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from sublet_functions.tick import TickSummary, one_round

TICK_SECONDS = 2.0
LISTEN_SECONDS = 30.0
WORKER_SECONDS = 86_400.0


class LocalWorkers:
    """Starts and watches the workers of one app on this machine, on one event loop.

    `on_line` gets each line that a worker prints, `on_end` the process id and exit code of an ended worker;
    `on_event` is called after changes of jobs, and ends of workers. No worker starts while `may_start`
    returns False. Workers inherit the file descriptors `keep`.
    """

    def __init__(
        self, store: Store, app: str, pool: Pool, report: Reporter, *, lease: float, env: Mapping[str, str], on_line: Hear,
        on_end: Callable[[int, int], None] = lambda pid, code: None, may_start: Callable[[], bool] = lambda: True,
        on_event: Callable[[], None] = lambda: None, arguments: Sequence[str] = (), keep: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.store, self.pool, self._report = store, LocalPool(store, pool), report
        settings = store.settings
        flags = where(settings.redis_url, settings.namespace)
        self.invoker = ProcessInvoker(
            app, most=2 * pool.max + 2, seconds=WORKER_SECONDS, arguments=(*flags, "--lease", f"{lease:g}s", *arguments),
            environment=environment(env), hear=on_line, ended=self._on_worker_end, grace=PATIENCE, keep=keep,
        )  # fmt: skip
        self._summoner = Summoner(store, {"process": self.invoker}, self.pool.is_served)
        self.monitor = WorkerMonitor(store, report, lease, lambda: self.invoker.processes, self.summon)
        self._on_end, self._may_start, self._on_event = on_end, may_start, on_event

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run: they listen to events, tick, and watch the workers."""
        return [self._listen(), self._tick(), self.monitor.run()]

    def summon(self) -> None:
        """Call `on_event`; begin to summon the owed workers, if they may start."""
        self._on_event()
        if self._may_start():
            self._summoner.nudge(self.pool.queues)

    async def _listen(self) -> None:
        event_stream = self.store.event_stream()
        heard = event_stream.version
        while True:
            if await event_stream.wait(heard, LISTEN_SECONDS):
                heard = event_stream.version
                self.summon()

    async def _tick(self) -> None:
        trouble = ""
        while True:
            began, done = time.monotonic(), TickSummary()
            try:
                await self._round(done)
            except JobsError as error:
                words = " ".join(str(error).split())
                if words != trouble:
                    self._report("tick", "failed", words)
                trouble = words
            else:
                if trouble:
                    self._report("tick", "ready", "ticks run again")
                trouble = ""
            for event, count in (("reaped", done.reaped), ("fired", done.fired)):
                if count:
                    self._report("tick", event, f"{event} {count:,}", count=count)
            await asyncio.sleep(max(0.0, began + TICK_SECONDS - time.monotonic()))

    async def _round(self, done: TickSummary) -> None:
        try:
            trouble = (await self.store.follow(one_round(self.store.operations, "dev", done))).error
        except NoNamespace:
            # the server was emptied
            trouble = await self.store.follow(self.store.operations.prepare())
        await self.pool.restore()
        if self._may_start():
            await self._summoner.summon()
        if trouble:
            raise trouble

    def _on_worker_end(self, summons: str, pid: int, code: int) -> None:
        self._on_end(pid, code)
        self.monitor.check_soon()
        self.summon()

    async def aclose(self) -> None:
        """Remove the pool; stop all workers, which finish or release their jobs; close the store."""
        with contextlib.suppress(JobsError):
            await self.pool.remove()
        # frozen workers release their jobs, too
        self._signal(signal.SIGCONT)
        await self._summoner.aclose()
        with contextlib.suppress(JobsError):
            await self.monitor.check()
        await self.store.aclose()

    def kill(self) -> None:
        """Send SIGKILL to all workers; do not wait."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for one in self.invoker.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)
