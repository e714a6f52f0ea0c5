"""The stall of a worker."""

import asyncio
import time
from collections.abc import Callable, Collection

from sublet.execution.attempt import Attempt, Why
from sublet.worker.capacity import Capacity


class Progress:
    """Notices that no running job of a worker ends; `watch` then calls `give_up` with the reason."""

    def __init__(
        self, attempts: Collection[Attempt], capacity: Capacity, give_up: Callable[[str], None]
    ) -> None:
        self._attempts, self._capacity, self._give_up = attempts, capacity, give_up
        self.since = time.monotonic()
        """Start of the time that counts as a stall, while jobs run."""
        self.ended_at = 0.0
        """When the last job ended (`time.monotonic`); 0: none has."""

    def job_starts(self) -> None:
        """Begin the time anew if no job runs. Call before the job counts as running."""
        if not self._capacity.running:
            self.since = time.monotonic()

    def job_ended(self) -> None:
        """Begin the time anew at a job's end."""
        self.since = self.ended_at = time.monotonic()

    async def watch(self, stall: float) -> None:
        """Wait until no running job has ended for `stall` seconds; end attempts that ran for so long, and give up."""
        while (silent := self._silent()) < stall:
            pause, before = max(0.05, min(stall - silent, stall / 4)), time.monotonic()
            await asyncio.sleep(pause)
            # Time of a stopped process does not count
            self.since += max(0.0, time.monotonic() - before - pause)
        for attempt in list(self._attempts):
            if attempt.context.seconds >= stall:
                attempt.message = (
                    f"ran for {attempt.context.seconds:.0f} s, and no job of its worker ended for {stall:g} s"
                )
                attempt.end(Why.STALLED)
        self._give_up(
            f"no job has ended for {silent:.0f} s: ending those that run ({self._capacity.running})"
        )

    def _silent(self) -> float:
        return time.monotonic() - self.since if self._capacity.running else 0.0
