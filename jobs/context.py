"""What a running task may ask, tell and raise."""

import json
from collections.abc import Callable
from typing import Any

from jobs.model import Lease


class Snooze(Exception):
    """Raise it in a task to give the job back for `delay` seconds; the try does not count. After 100 in a row one does."""

    def __init__(self, delay: float, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay, self.reason = delay, reason


class Discard(Exception):
    """Raise it in a task to bury the job at once, whatever tries are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Context:
    """One attempt, as its task sees it. A task that takes a `Context` first is given it."""

    def __init__(self, lease: Lease, tell: Callable[[bytes], None]) -> None:
        self.id, self.task, self.queue = lease.id, lease.task, lease.queue
        self.attempt = lease.attempt
        """Which attempt this is, from 1."""
        self.fence = lease.fence
        """Grows from attempt to attempt: pass it on to whatever must refuse a late writer."""
        self.recovered = lease.recovered or None
        """Why there was an attempt before this one and how it ended (`lease_expired`, `crashed`, a failure's code …)."""
        self.cancelled = False
        """True once somebody asked for the job's cancellation, or its lease was lost: clean up and return."""
        self._tell = tell

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Say how far the work is, from 0 to 1. Sent with the next heartbeat, so calling it often costs nothing."""
        news: dict[str, Any] = {"fraction": round(min(max(fraction, 0.0), 1.0), 4)}
        if stage:
            news["stage"] = stage[:64]
        if message:
            news["message"] = message[:128]
        self._tell(json.dumps(news).encode())
