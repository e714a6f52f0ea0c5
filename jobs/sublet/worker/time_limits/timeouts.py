"""End attempts at their timeout, or after too long without progress (`stall`)."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sublet.execution.attempt import Attempt, Why

T = TypeVar("T")

KEPT = 64
BEGIN_SECONDS = 0.25


class Timeouts(Generic[T]):
    """Calls `on_timeout` with each item that was not removed in time."""

    def __init__(self, on_timeout: Callable[[T], None]) -> None:
        self._on_timeout = on_timeout
        self._by_duration: dict[int | None, dict[T, float]] = {}
        self._timers: dict[int | None, asyncio.TimerHandle] = {}

    def add(self, item: T, ms: int | None) -> None:
        """Start the timeout of an item, in ms; None: it has none."""
        if ms is None:
            return
        queue = self._by_duration.get(ms)
        if queue is None:
            queue = self._by_duration[ms] = {}
            self._timers[ms] = asyncio.get_running_loop().call_later(ms / 1000, self._expire, ms)
        queue[item] = time.monotonic() + ms / 1000

    def remove(self, item: T, ms: int | None) -> None:
        """Remove an item that has ended; `ms` is the value that was given to `add`."""
        queue = self._by_duration.get(ms)
        if queue is None:
            return
        queue.pop(item, None)
        if not queue and len(self._by_duration) > KEPT:
            self._timers.pop(ms).cancel()
            del self._by_duration[ms]

    def _expire(self, ms: int) -> None:
        queue = self._by_duration[ms]
        for item, moment in list(queue.items()):
            left = moment - time.monotonic()
            if left > 0:
                self._timers[ms] = asyncio.get_running_loop().call_later(left, self._expire, ms)
                return
            queue.pop(item, None)
            try:
                self._on_timeout(item)
            except Exception as error:  # noqa: BLE001  # a cancellation runs a task's own code; the next items must expire, too
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "an attempt could not be ended at its timeout", "exception": error}
                )
        del self._by_duration[ms], self._timers[ms]

    def clear(self) -> None:
        """Remove all items and timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._by_duration.clear()


class Stalls:
    """Ends attempts that report no progress for the `stall` of their jobs. Waits for other jobs, a free
    child process or a thread do not count.
    """

    def __init__(self) -> None:
        self._timers: dict[Attempt, asyncio.TimerHandle] = {}

    def add(self, attempt: Attempt) -> None:
        """Begin to watch an attempt, whose job must have a `stall`."""
        attempt.reports.progressed_at = time.monotonic()
        self._check_in(_limit(attempt), attempt)

    def remove(self, attempt: Attempt) -> None:
        """Stop watching an attempt."""
        timer = self._timers.pop(attempt, None)
        if timer:
            timer.cancel()

    def clear(self) -> None:
        """Stop watching all attempts."""
        for attempt in list(self._timers):
            self.remove(attempt)

    def _check_in(self, seconds: float, attempt: Attempt) -> None:
        due = time.monotonic() + seconds
        self._timers[attempt] = asyncio.get_running_loop().call_later(seconds, self._check, attempt, due)

    def _check(self, attempt: Attempt, due: float) -> None:
        attempt.context.flush()
        reports, now = attempt.reports, time.monotonic()
        if reports.waiting or not getattr(attempt.running, "begun", True):
            reports.progressed_at = now
        else:
            # Time of a stopped process does not count
            reports.progressed_at += max(0.0, now - due)
        left = reports.progressed_at + _limit(attempt) - now
        if left <= 0:
            del self._timers[attempt]
            attempt.end(Why.STALLED)
        elif reports.progressed_at == now:
            self._check_in(min(left, BEGIN_SECONDS), attempt)
        else:
            self._check_in(left, attempt)


def _limit(attempt: Attempt) -> float:
    return (attempt.lease.stall_ms or 0) / 1000
