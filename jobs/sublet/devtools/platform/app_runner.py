"""Run an app: one pool for its queues, its schedules, and new workers when its source changes."""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublet.connection.settings import Settings
from sublet.devtools.platform.app_source import AppBroken, AppInfo, sync_schedules
from sublet.devtools.platform.local_workers import LocalWorkers
from sublet.devtools.platform.pool import pool_name
from sublet.devtools.platform.reload import Reload
from sublet.devtools.platform.reports import Reporter
from sublet.devtools.platform.supervisor import exit_reason
from sublet.devtools.platform.worker_output import WorkerOutput
from sublet.errors import JobsError
from sublet.operations.pool import Pool
from sublet.store.store import Store
from sublet.tasks.catalogue import published_as

if TYPE_CHECKING:
    from sublet.devtools.platform.platform import PlatformConfig

LOAD_INTERVAL = 1.0
LOAD_SECONDS = 2.0
RETRY_SECONDS = 5.0


class AppRunner:
    """Runs one app for `sublet dev`, on one event loop."""

    def __init__(
        self,
        config: "PlatformConfig",
        settings: Settings,
        seen: AppInfo,
        report: Reporter,
        env: Mapping[str, str],
        keep: Sequence[int] = (),
    ) -> None:
        self._config, self.settings, self._report, self._env = config, settings, report, env
        self._output = WorkerOutput(report, config.call, config.lines_max)
        self._changed = asyncio.Event()
        self._retired: set[int] = set()
        self.reload = Reload(config.app, env, seen, report, self._replace_workers)
        name = pool_name(config.app, Path.cwd())
        pool = Pool(
            name=name,
            queues=(),
            invoker="process",
            max=config.workers,
            slots=config.slots,
            wait=config.wait,
            linger=config.linger,
        )
        self.workers = LocalWorkers(
            Store(settings), config.app, pool, report, lease=config.lease, env=env, on_line=self._output.read_line, on_end=self._on_worker_end,
            may_start=lambda: not self.reload.broken, on_event=self._changed.set, keep=keep,
        )  # fmt: skip
        self._unsynced = asyncio.Event()
        # a new server has no schedules; a described app is not imported
        if not config.describe and (seen.schedules or config.data or not config.embedded):
            self._unsynced.set()

    async def start(self) -> None:
        """Create the namespace, if missing, and the pool; try to publish the app's tasks. Raises JobsError."""
        await self.workers.store.prepare()
        await self.workers.pool.put(self.reload.seen.queues)
        await self._publish(self.reload.seen)

    async def _publish(self, seen: AppInfo) -> None:
        tasks = [published_as(name, text.encode()) for name, text in seen.descriptions.items()]
        with contextlib.suppress(JobsError):  # workers publish, too
            await self.workers.store.publish(tasks, starting=True)

    def loops(self, over: asyncio.Event, ready: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        """Return coroutines, which the caller runs, and cancels when `over` is set. From `ready` on, one
        reports the pool's load.
        """
        loops = [*self.workers.loops(), self._sync(), self._report_load(ready), self._output.run()]
        return [*loops, self.reload.run(over)] if self._config.reload else loops

    async def _sync(self) -> None:
        last_error = ""
        while True:
            await self._unsynced.wait()
            self._unsynced.clear()
            try:
                done = await sync_schedules(self._config.app, self._env)
            except AppBroken as error:
                if str(error) != last_error:
                    self._report(
                        "app",
                        "failed",
                        f"the schedules cannot be synchronized, next try in {RETRY_SECONDS:g} s: {error}",
                    )
                last_error = str(error)
                self._unsynced.set()
                await asyncio.sleep(RETRY_SECONDS)
            else:
                last_error = ""
                if done:
                    self._report("app", "schedules", f"schedules: {', '.join(done)}", schedules=done)

    async def _report_load(self, ready: asyncio.Event) -> None:
        before = ""
        await ready.wait()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOAD_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(JobsError):
                load = await self.workers.pool.load(bool(self.reload.broken))
                if load.words != before:
                    self._report("pool", "load", load.words, **asdict(load))
                before = load.words
            await asyncio.sleep(LOAD_INTERVAL)

    def _on_worker_end(self, pid: int, code: int) -> None:
        if code and pid not in self._retired:
            self._report("worker", "died", f"{pid} died ({exit_reason(code)})", pid=pid, exit=code)
        else:
            self._report("worker", "gone", f"{pid} ended", pid=pid)
        self._retired.discard(pid)

    async def _replace_workers(self, seen: AppInfo) -> None:
        # else the next tick does it
        with contextlib.suppress(JobsError):
            await self.workers.pool.put(seen.queues)
        await self._publish(seen)
        self._unsynced.set()
        self._retired |= await self.workers.monitor.retire()
        self.workers.summon()
