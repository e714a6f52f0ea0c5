"""The app and its workers: one pool for its queues, its schedules in Redis, and other workers when its source changes."""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublet.connection.settings import Settings
from sublet.devtools.platform.app_source import AppBroken, AppInfo, sync
from sublet.devtools.platform.local_workers import LocalWorkers
from sublet.devtools.platform.pool import name_of
from sublet.devtools.platform.reload import Reload
from sublet.devtools.platform.reports import Reporter
from sublet.devtools.platform.supervisor import ended
from sublet.devtools.platform.worker_output import WorkerOutput
from sublet.errors import JobsError
from sublet.operations.pool import Pool
from sublet.store.store import Store

if TYPE_CHECKING:
    from sublet.devtools.platform.platform import PlatformConfig

SHOWN = 1.0
"""Seconds between two lines with numbers, at least."""
LOOK = 2.0
"""Seconds between two looks at the numbers where nothing happens."""
AGAIN = 5.0
"""Seconds until what could not be done is tried again."""


class AppRunner:
    """What `sublet dev` has of an app. Belongs to one event loop."""

    def __init__(
        self,
        wishes: "PlatformConfig",
        settings: Settings,
        seen: AppInfo,
        report: Reporter,
        env: Mapping[str, str],
    ) -> None:
        self._wishes, self.settings, self._report, self._env = wishes, settings, report, env
        self._talk = WorkerOutput(report, wishes.call)
        self._news = asyncio.Event()
        self._retired: set[int] = set()
        self.reload = Reload(wishes.app, env, seen, report, self._take)
        name = name_of(wishes.app, Path.cwd())
        wish = Pool(
            name=name,
            queues=(),
            invoker="process",
            max=wishes.workers,
            slots=wishes.slots,
            linger=wishes.linger,
        )
        self.workers = LocalWorkers(
            Store(settings), wishes.app, wish, report, lease=wishes.lease, env=env, on_line=self._talk.hear, on_end=self._ended,
            may=lambda: not self.reload.broken, news=self._news.set,
        )  # fmt: skip
        self._unsynced = asyncio.Event()
        if (
            seen.schedules or wishes.data or not wishes.embedded
        ):  # in a server that was just made there is nothing to remove
            self._unsynced.set()

    async def start(self) -> None:
        """Make the namespace and the pool. Raises JobsError."""
        await self.workers.store.prepare()
        await self.workers.pool.put(self.reload.seen.queues)

    def loops(self, over: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        """What goes on until it is over."""
        loops = [*self.workers.loops(), self._sync(), self._tell_numbers(), self._talk.run()]
        return [*loops, self.reload.run(over)] if self._wishes.reload else loops

    async def _sync(self) -> None:
        """Have the schedules in Redis as the app has them, at the start and after each change."""
        complaint = ""
        while True:
            await self._unsynced.wait()
            self._unsynced.clear()
            try:
                done = await sync(self._wishes.app, self._env)
            except AppBroken as error:
                if str(error) != complaint:
                    self._report("app", "failed", f"the schedules cannot be put, tried again: {error}")
                complaint = str(error)
                self._unsynced.set()
                await asyncio.sleep(AGAIN)
            else:
                complaint = ""
                if done:
                    self._report("app", "schedules", f"schedules: {', '.join(done)}", schedules=done)

    async def _tell_numbers(self) -> None:
        """Say how much waits and runs, and how many workers there are, when that has changed."""
        before = ""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._news.wait()
            self._news.clear()
            with contextlib.suppress(JobsError):
                numbers = await self.workers.pool.numbers(bool(self.reload.broken))
                if numbers.words != before:
                    self._report("pool", "load", numbers.words, **asdict(numbers))
                before = numbers.words
            await asyncio.sleep(SHOWN)

    def _ended(self, pid: int, code: int) -> None:
        if code and pid not in self._retired:
            self._report("worker", "died", f"{pid} died ({ended(code)})", pid=pid, exit=code)
        else:
            self._report("worker", "gone", f"{pid} is gone", pid=pid)
        self._retired.discard(pid)

    async def _take(self, seen: AppInfo) -> None:
        """The app has changed: its workers finish or give back what they have, and others are summoned as they are owed."""
        with contextlib.suppress(JobsError):  # the next tick puts it
            await self.workers.pool.put(seen.queues)
        self._unsynced.set()
        self._retired |= await self.workers.crew.retire()
        self.workers.ask()
