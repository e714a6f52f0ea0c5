"""When attempts must have ended. A timer for each job would cost as much as reading its arguments and writing its result."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

ROWS = 64
"""Lengths of time that keep their row while it is empty."""


class Deadlines(Generic[T]):
    """Calls `late` with whatever was not forgotten within its time.

    What is given the same time falls due in the order in which it came: so each length of time is one row, with one timer for
    the head of it.
    """

    def __init__(self, late: Callable[[T], None]) -> None:
        self._late = late
        self._rows: dict[int | None, dict[T, float]] = {}
        self._timers: dict[int | None, asyncio.TimerHandle] = {}

    def watch(self, item: T, ms: int | None) -> None:
        """Begin; within so many ms `item` is to be forgotten. None: at any time, or never."""
        if ms is None:
            return
        row = self._rows.get(ms)
        if row is None:
            row = self._rows[ms] = {}
            self._timers[ms] = asyncio.get_running_loop().call_later(ms / 1000, self._look, ms)
        row[item] = time.monotonic() + ms / 1000

    def forget(self, item: T, ms: int | None) -> None:
        """It has ended."""
        row = self._rows.get(ms)
        if row is None:
            return
        row.pop(item, None)
        if not row and len(self._rows) > ROWS:
            self._timers.pop(ms).cancel()
            del self._rows[ms]

    def _look(self, ms: int) -> None:
        """End what is due, and look again when the next is."""
        row = self._rows[ms]
        for item, moment in list(row.items()):
            left = moment - time.monotonic()
            if left > 0:
                self._timers[ms] = asyncio.get_running_loop().call_later(left, self._look, ms)
                return
            row.pop(item, None)
            try:
                self._late(item)
            except Exception as error:  # noqa: BLE001  # a cancellation passes through a task's own code; others are late, too
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "what is late cannot be ended", "exception": error}
                )
        del self._rows[ms], self._timers[ms]

    def stop(self) -> None:
        """Call nobody any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._rows.clear()
