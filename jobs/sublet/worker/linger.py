"""Decide how long a worker without work waits."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from sublet.errors import Unavailable
from sublet.store.outage_log import OutageLog
from sublet.worker.settle_loop import RETRY_AFTER

IDLE = 10.0
ASK_EVERY = 1.0


class Linger:
    """How long a worker waits for more jobs: `seconds`; then it leaves if `may_leave` returns True.

    The end of a job restarts the wait, but not in a pool, which would then never shrink.
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
        """Cleared while the worker asks to leave: claims wait until it is set."""
        self.not_asking.set()

    @property
    def left(self) -> float:
        """Seconds until the worker, if it has no job, asks whether it may leave; 0 or less: at once."""
        return self.since + self.seconds - time.monotonic()

    def job_ended(self) -> None:
        """Restart the wait, unless in a pool."""
        if not self.in_pool:
            self.since = time.monotonic()

    def wait_seconds(self, has_work: bool) -> float:
        """Return how many seconds, at most 10, the next claim waits. `has_work`: whether jobs run."""
        return min(IDLE, max(self.seconds, ASK_EVERY) if has_work else max(0.0, self.left))

    async def ask_to_leave(self) -> None:
        """Ask whether the worker may leave; set `dismissed` to the answer. A no restarts the wait, then of at
        least 1 s. No claim starts before the answer. If none arrives, the worker stays.
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
