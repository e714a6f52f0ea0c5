"""Recover the jobs of dead workers at once, and kill frozen workers."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection

from sublet.devtools.platform.reports import Reporter
from sublet.errors import JobsError
from sublet.model import Card, WorkerInfo
from sublet.operations.pools import new_summons
from sublet.scaling.invokers.process import Spawned
from sublet.store.store import Store
from sublet.worker import host_identity

CHECK_SECONDS = 2.0
START_SECONDS = 60.0
FROZEN_SECONDS = 12.0


class WorkerMonitor:
    """Watches this machine's workers by registrations and processes. `own` returns the platform's processes,
    `ask` summons workers.
    """

    def __init__(
        self,
        store: Store,
        report: Reporter,
        lease: float,
        own: Callable[[], Collection[Spawned]],
        ask: Callable[[], None],
    ) -> None:
        self._store, self._report, self._own, self._ask = store, report, own, ask
        self._limit = max(lease, FROZEN_SECONDS)
        self._me = host_identity.identity()
        self._silent: dict[int, tuple[object, float]] = {}
        self._checked_at = time.monotonic()
        self._changed = asyncio.Event()

    def check_soon(self) -> None:
        """Let `run` check now."""
        self._changed.set()

    async def run(self) -> None:
        """Check every 2 s, or sooner after `check_soon`, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.check()
            except JobsError:  # the tick reports it
                self._silent.clear()

    async def check(self) -> None:
        """End leases of this machine's dead workers, and summon others; kill those of `own` without heartbeats
        for 12 s (60 s before the first), or for the lease if longer. Raises Unavailable.
        """
        known = await self._store.workers()
        dead = {worker.name: worker.life for worker in known if host_identity.is_gone(worker.about, self._me)}
        if dead:
            jobs = await self._store.reconcile(dead)
            if jobs:
                self._report("worker", "returned", f"{_jobs(jobs)} of dead workers queued again", jobs=jobs)
            self._ask()
        living = (
            worker
            for worker in known
            if worker.name not in dead and host_identity.is_here(worker.about, self._me)
        )
        here = {worker.about.get("pid"): worker for worker in living}
        own = {one.pid for one in self._own()}
        for pid in own:
            self._check_heartbeat(pid, here.get(pid))
        self._silent = {pid: seen for pid, seen in self._silent.items() if pid in own}
        self._checked_at = time.monotonic()

    async def retire(self) -> set[int]:
        """Send SIGTERM to the workers of `own`, and unregister them or end their summons, so that others can
        start; return their process ids.
        """
        own = {one.pid: one for one in self._own()}
        starting = dict(own)
        with contextlib.suppress(JobsError):
            for worker in await self._store.workers():
                if worker.about.get("pid") in own and host_identity.is_here(worker.about, self._me):
                    await self._store.leave(Card(worker.name, worker.life, worker.worker_id, b""))
                    starting.pop(worker.about["pid"], None)
            for one in starting.values():
                card = Card(f"ended-{new_summons()}", one.summons, "", b"{}", one.pool, one.summons)
                await self._store.enlist(card)
                await self._store.leave(card)
        for pid in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return set(own)

    def _check_heartbeat(self, pid: int, worker: WorkerInfo | None) -> None:
        passed = min(time.monotonic() - self._checked_at, 2 * CHECK_SECONDS)
        heartbeat = worker.seen_at if worker else None
        seen, silent = self._silent.get(pid, (None, 0.0))
        silent = silent + passed if seen == heartbeat else 0.0
        self._silent[pid] = (heartbeat, silent)
        if silent >= (self._limit if worker else max(self._limit, START_SECONDS)):
            self._report("worker", "killed", f"{pid} sent no heartbeat for {silent:.0f} s", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
