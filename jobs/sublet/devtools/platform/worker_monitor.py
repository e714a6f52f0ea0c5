"""Looks after the workers on this machine: the dead ones' jobs come back at once, and a frozen one is ended."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection

from sublet.devtools.platform.reports import Reporter
from sublet.errors import JobsError
from sublet.model import Card, WorkerInfo
from sublet.store.store import Store
from sublet.worker import host_identity

LOOK = 2.0
"""Seconds between two looks where nothing asks for one."""
UNSEEN = 60.0
"""Seconds that one may take to show its first sign of life, as long as its modules may take to be imported."""
SILENT = 12.0
"""Seconds without a sign of life after which nobody counts on a worker; they come every 5 s."""


class Crew:
    """The workers that this process has started, as the register and the system see them."""

    def __init__(
        self,
        store: Store,
        report: Reporter,
        lease: float,
        own: Callable[[], Collection[int]],
        ask: Callable[[], None],
    ) -> None:
        self._store, self._report, self._own, self._ask = store, report, own, ask
        self._limit = max(lease, SILENT)
        self._me = host_identity.identity()
        self._silent: dict[int, tuple[object, float]] = {}
        self._looked_at = time.monotonic()
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """One of them has ended: look now."""
        self._changed.set()

    async def run(self) -> None:
        """Look after them until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.look()
            except JobsError:  # the tick report so; while Redis is away, nobody can give it a sign of life
                self._silent.clear()

    async def look(self) -> None:
        """Give back what the dead held, and end who is frozen. Raises Unavailable."""
        known = await self._store.workers()
        gone = {worker.name: worker.life for worker in known if host_identity.is_gone(worker.about, self._me)}
        if gone:
            jobs = await self._store.reconcile(gone)
            if jobs:
                self._report(
                    "worker", "returned", f"{_jobs(jobs)} of dead workers: queued again at once", jobs=jobs
                )
            self._ask()
        living = (
            worker
            for worker in known
            if worker.name not in gone and host_identity.is_here(worker.about, self._me)
        )
        here = {worker.about.get("pid"): worker for worker in living}
        for pid in self._own():
            self._mind(pid, here.get(pid))
        self._silent = {pid: seen for pid, seen in self._silent.items() if pid in self._own()}
        self._looked_at = time.monotonic()

    async def retire(self) -> set[int]:
        """Have all of them finish or give back what they have, and go; which processes those are.

        They are off the crew at once, so that others may be summoned in their place while they finish.
        """
        own = set(self._own())
        with contextlib.suppress(JobsError):
            for worker in await self._store.workers():
                if worker.about.get("pid") in own and host_identity.is_here(worker.about, self._me):
                    await self._store.leave(Card(worker.name, worker.life, worker.worker_id, b""))
        for pid in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return own

    def _mind(self, pid: int, worker: WorkerInfo | None) -> None:
        """End a worker that is there and has shown no sign of life for too long, or never one.

        By looks of ours: neither clocks that jump nor a machine that slept make one look frozen.
        """
        passed = min(time.monotonic() - self._looked_at, 2 * LOOK)
        sign = worker.seen_at if worker else None
        seen, silent = self._silent.get(pid, (None, 0.0))
        silent = silent + passed if seen == sign else 0.0
        self._silent[pid] = (sign, silent)
        if silent >= (self._limit if worker else max(self._limit, UNSEEN)):
            self._report("worker", "killed", f"{pid} gave no sign of life for {silent:.0f} s", pid=pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
