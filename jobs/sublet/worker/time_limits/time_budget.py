"""The time budget of a worker."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sublet.app import Task
from sublet.model import Lease
from sublet.protocol import keys


class TimeBudget:
    """A worker's time: `seconds` from now (None: no limit). The `grace`, at most a fifth of that time, is
    left for running jobs to end.

    A job starts only if the rest exceeds its `timeout`. A timeout longer than the whole time less the grace
    is ignored.
    """

    def __init__(self, seconds: float | None, grace: float, tasks: Mapping[str, Task[..., Any]]) -> None:
        self.seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._reserve = 0.0 if seconds is None else min(grace, seconds / 5)
        self._closed: set[str] = set()
        self._needs: dict[str, float] = {}
        for task in tasks.values():
            queue, timeout = task.defaults.queue, task.defaults.timeout
            needs = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
            self._needs[queue] = min(self._needs.get(queue, float("inf")), self._needed(needs))

    def _needed(self, timeout: float | None) -> float:
        if timeout is None or self.seconds is None or timeout > self.seconds - self._reserve:
            return 0.0
        return timeout

    @property
    def left(self) -> float:
        """Seconds until the end, negative after; infinite without a limit."""
        return float("inf") if self._ends is None else self._ends - time.monotonic()

    @property
    def to_claim(self) -> float | None:
        """Seconds for which jobs may still be claimed; None: no limit."""
        return None if self.seconds is None else max(0.0, self.left - self._reserve)

    def open(self, queues: Sequence[str]) -> Sequence[str]:
        """Return those of the queues and patterns that jobs may still be claimed from."""
        if self._ends is None:
            return queues
        return [
            queue
            for queue in queues
            if not self._is_closed(queue) and self._needs.get(queue, 0.0) < self.left
        ]

    def _is_closed(self, queue: str) -> bool:
        return queue in self._closed or (
            queue.endswith("*") and any(keys.fits(closed, queue) for closed in self._closed)
        )

    def suffices(self, lease: Lease) -> bool:
        """Whether there is time for the job. If not, `open` leaves out its queue, and its patterns, from now on."""
        if self._ends is None or lease.timeout_ms is None:
            return True
        if self._needed(lease.timeout_ms / 1000) < self.left:
            return True
        self._closed.add(lease.queue)
        return False
