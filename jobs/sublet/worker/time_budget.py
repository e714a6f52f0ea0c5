"""The seconds that a worker has, if its platform will end it: what cannot be finished in time is not begun."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sublet.app import Task
from sublet.model import Lease


class Budget:
    """So many seconds from now, or no end at all. Of these, the grace (a fifth at most) is for finishing what runs.

    A task needs its `timeout`; one that is longer than the whole budget says nothing, and counts as none.
    """

    def __init__(self, seconds: float | None, grace: float, tasks: Mapping[str, Task[..., Any]]) -> None:
        self.seconds = seconds
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._spare = 0.0 if seconds is None else min(grace, seconds / 5)
        self._closed: set[str] = set()
        self._needs: dict[str, float] = {}
        for task in tasks.values():
            queue, timeout = task.defaults.queue, task.defaults.timeout
            needs = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
            self._needs[queue] = min(self._needs.get(queue, float("inf")), self._serious(needs))

    def _serious(self, needs: float | None) -> float:
        return (
            needs
            if needs is not None and self.seconds is not None and needs <= self.seconds - self._spare
            else 0.0
        )

    @property
    def left(self) -> float:
        """Seconds until the end; infinite without a budget."""
        return float("inf") if self._ends is None else self._ends - time.monotonic()

    @property
    def to_claim(self) -> float | None:
        """Seconds during which jobs are claimed; the rest is for finishing what runs."""
        return None if self.seconds is None else max(0.0, self.left - self._spare)

    def open(self, queues: Sequence[str]) -> list[str]:
        """Those queues of which some task could still be finished, and which gave no job that could not."""
        if self._ends is None:
            return list(queues)
        return [
            queue for queue in queues if queue not in self._closed and self._needs.get(queue, 0.0) < self.left
        ]

    def suffices(self, lease: Lease) -> bool:
        """Is there time for this job? If not, its queue is left to others from now on."""
        if (
            self._ends is None
            or lease.timeout_ms is None
            or self._serious(lease.timeout_ms / 1000) < self.left
        ):
            return True
        self._closed.add(lease.queue)
        return False
