"""Timer for maintenance: due jobs must be moved on time, even while every slot is taken and the worker claims nothing."""

import asyncio
from collections.abc import Awaitable, Callable

from sublet.errors import Unavailable
from sublet.worker.settle_loop import RETRY_AFTER
from sublet.worker.state import WorkerState


class MaintenanceTimer:
    """Calls `claim_nothing` (a claim of no jobs, which does the maintenance) when the next job falls due.

    Each answer to a claim contains that time, and sets the timer anew. An open claim does the maintenance by itself.
    """

    def __init__(self, claim_nothing: Callable[[], Awaitable[object]], state: WorkerState) -> None:
        self._claim_nothing, self._state = claim_nothing, state
        self._timer: asyncio.TimerHandle | None = None
        self._claim: asyncio.Task[None] | None = None

    def set(self, seconds: float) -> None:
        """Do the maintenance in so many seconds; replaces the time that was set before."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def stop(self) -> list["asyncio.Task[None]"]:
        """Cancel the timer. Returns the claim that it may have started, which can still be under way."""
        if self._timer:
            self._timer.cancel()
        return [self._claim] if self._claim else []

    def _start(self) -> None:
        if not self._state.capacity.reserved and not self._state.stopping.is_set():
            self._claim = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._claim_nothing()
        except Unavailable as error:
            self._state.outage.failed("do the maintenance", error)
            self.set(RETRY_AFTER)
