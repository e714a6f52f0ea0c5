"""Decide how long a draining worker stays without work."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from sublet.errors import Unavailable
from sublet.store.outage_log import OutageLog
from sublet.worker.settle_loop import RETRY_AFTER

IDLE = 10.0
ASK_EVERY = 1.0


class Linger:
    """A draining worker waits `seconds` for more jobs; then it leaves if `may_leave` allows it.

    Each job restarts the time, but not in a pool: in one far too large, every worker gets a job now and
    then.
    """

    def __init__(
        self,
        seconds: float,
        may_leave: Callable[[], Awaitable[bool]],
        outage: OutageLog,
        in_pool: bool = False,
    ) -> None:
        self.seconds, self.in_pool = seconds, in_pool
        self._may_leave, self._outage = may_leave, outage
        self.since = time.monotonic()
        self.dismissed = False
        self.not_asking = asyncio.Event()
        """Cleared while the worker asks to leave: a dismissed worker must not hold jobs."""
        self.not_asking.set()

    @property
    def left(self) -> float:
        """Seconds until the worker may ask to leave."""
        return self.since + self.seconds - time.monotonic()

    def job_ended(self) -> None:
        """Restart the wait after a job, unless in a pool."""
        if not self.in_pool:
            self.since = time.monotonic()

    def wait_seconds(self, has_work: bool) -> float:
        """Return for how many seconds the next claim waits for a job."""
        return min(IDLE, max(self.seconds, ASK_EVERY) if has_work else max(0.0, self.left))

    async def ask_to_leave(self) -> None:
        """Ask to leave, and set `dismissed` if allowed; no claim starts meanwhile. Without an answer the
        worker stays.
        """
        self.not_asking.clear()
        try:
            self.dismissed = await self._may_leave()
            self.since = time.monotonic() + max(0.0, ASK_EVERY - self.seconds)
        except Unavailable as error:
            self._outage.failed("ask whether to leave", error)
            await asyncio.sleep(RETRY_AFTER)
        finally:
            self.not_asking.set()
