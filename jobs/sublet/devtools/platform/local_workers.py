"""The workers of one pool on this machine: summoned when a job is queued, wherever it came from, looked after, and replaced."""

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
from sublet.devtools.platform.worker_monitor import Crew
from sublet.errors import JobsError, NoNamespace
from sublet.operations.pool import Pool
from sublet.scaling.invokers.process import Hear, ProcessInvoker
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from sublet_functions.tick import TickSummary, one_round

TICK = 2.0
"""Seconds between two ticks."""
HEARD = 30.0
"""Seconds that one wait for news of jobs may take."""
LIFE = 86_400.0
"""Seconds that a worker may live: here, unlike on a function platform, there is no bill to stop."""


class LocalWorkers:
    """Has workers of an app come and go. Belongs to one event loop, and closes its store.

    `on_line` is given each line that a worker writes, `on_end` its process and its exit code; `may` report whether any may be started
    now, and `news` is called whenever something happens to a job.
    """

    def __init__(
        self, store: Store, app: str, wish: Pool, report: Reporter, *, lease: float, env: Mapping[str, str], on_line: Hear,
        on_end: Callable[[int, int], None] = lambda pid, code: None, may: Callable[[], bool] = lambda: True,
        news: Callable[[], None] = lambda: None, arguments: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.store, self.pool, self._report = store, LocalPool(store, wish), report
        settings = store.settings
        flags = where(settings.redis_url, settings.namespace)
        self.invoker = ProcessInvoker(
            app, most=2 * wish.max + 2, seconds=LIFE, arguments=(*flags, "--lease", f"{lease:g}s", *arguments),
            environment=environment(env), hear=on_line, ended=self._on_worker_end,
        )  # fmt: skip
        self._summoner = Summoner(store, {"process": self.invoker}, self.pool.calls)
        self.crew = Crew(store, report, lease, lambda: {one.pid for one in self.invoker.processes}, self.ask)
        self._on_end, self._may, self._news = on_end, may, news

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on as long as they are wanted."""
        return [self._follow(), self._tick(), self.crew.run()]

    def ask(self) -> None:
        """Ask for the workers that are owed."""
        self._news()
        if self._may():
            self._summoner.nudge(self.pool.queues)

    async def _follow(self) -> None:
        """Ask for workers as soon as something happens to any job, whoever did it: one connection hears of all moves."""
        event_stream = self.store.event_stream()
        heard = event_stream.version
        while True:
            if await event_stream.wait(heard, HEARD):
                heard = event_stream.version
                self.ask()

    async def _tick(self) -> None:
        """Do what time has decided, every two seconds."""
        trouble = ""
        while True:
            began, done = time.monotonic(), TickSummary()
            try:
                await self._round(done)
            except JobsError as error:  # the next tick is the retry
                words = " ".join(str(error).split())
                if words != trouble:
                    self._report("tick", "failed", words)
                trouble = words
            else:
                if trouble:
                    self._report("tick", "ready", "ticks again")
                trouble = ""
            for what, count in (("reaped", done.reaped), ("fired", done.fired)):
                if count:
                    self._report("tick", what, f"{what} {count:,}", count=count)
            await asyncio.sleep(max(0.0, began + TICK - time.monotonic()))

    async def _round(self, done: TickSummary) -> None:
        try:
            trouble = (await self.store.follow(one_round(self.store.operations, "dev", done))).error
        except NoNamespace:  # somebody has emptied the server
            trouble = await self.store.follow(self.store.operations.prepare())
        await self.pool.restore()
        if self._may():
            await self._summoner.summon()
        if trouble:
            raise trouble

    def _on_worker_end(self, summons: str, pid: int, code: int) -> None:
        """A worker has ended. What it held comes back, and another one is summoned if one is owed."""
        self._on_end(pid, code)
        self.crew.changed()
        self.ask()

    async def aclose(self) -> None:
        """Have all workers finish or give back what they have, and go."""
        with contextlib.suppress(JobsError):
            await self.pool.remove()
        self._signal(signal.SIGCONT)  # one that is frozen can give back what it has, too
        await self._summoner.aclose()  # it closes the invoker, too
        with contextlib.suppress(JobsError):
            await self.crew.look()
        await self.store.aclose()

    def kill(self) -> None:
        """End all workers at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for one in self.invoker.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)
