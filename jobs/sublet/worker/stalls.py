"""Ends attempts that report no progress (the option `stall`). One timer for each: their tasks are long."""

import asyncio
import time

from sublet.execution.attempt import Attempt, Why

BEGIN_SECONDS = 0.25
"""Seconds between two checks whether a task has begun."""


class Stalls:
    """The attempts of a worker that have the option."""

    def __init__(self) -> None:
        self._timers: dict[Attempt, asyncio.TimerHandle] = {}

    def add(self, attempt: Attempt) -> None:
        """Watch an attempt that starts."""
        attempt.reports.progressed_at = time.monotonic()
        self._check_in(_limit(attempt), attempt)

    def remove(self, attempt: Attempt) -> None:
        """Watch it no more."""
        timer = self._timers.pop(attempt, None)
        if timer:
            timer.cancel()

    def clear(self) -> None:
        """Watch none."""
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
            # Time during which this process was stopped does not count
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
