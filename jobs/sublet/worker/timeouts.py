"""Timeouts of attempts. One timer per job would cost as much as reading its arguments and writing its result."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT = 64


class Timeouts(Generic[T]):
    """Calls `on_timeout` with each item that was not removed in time. One queue and one timer per duration."""

    def __init__(self, on_timeout: Callable[[T], None]) -> None:
        self._on_timeout = on_timeout
        self._by_duration: dict[int | None, dict[T, float]] = {}
        self._timers: dict[int | None, asyncio.TimerHandle] = {}

    def add(self, item: T, ms: int | None) -> None:
        """Start the timeout of an item, in ms (None: never)."""
        if ms is None:
            return
        queue = self._by_duration.get(ms)
        if queue is None:
            queue = self._by_duration[ms] = {}
            self._timers[ms] = asyncio.get_running_loop().call_later(ms / 1000, self._expire, ms)
        queue[item] = time.monotonic() + ms / 1000

    def remove(self, item: T, ms: int | None) -> None:
        """Remove an item that has ended; `ms` as in `add`."""
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
