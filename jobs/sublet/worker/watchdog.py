"""Sees, from a thread of its own, whether the worker's event loop still turns; if not, says which task holds it.

A blocked loop sends no heartbeats, so the leases end and the jobs run elsewhere: nothing is lost, but somebody should know why.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

log = logging.getLogger("sublet.worker.worker")

LOOK = 0.25
"""Seconds between two looks."""
LAG = 1.0
"""Seconds without a turn of the loop after which it counts as blocked."""

Name = Callable[["asyncio.Task[Any] | None"], str]
"""Says in words which job an asyncio task runs."""


class Watchdog:
    """Watches the running loop from `start` to `stop`."""

    def __init__(self, name: Name, stall: float | None = None) -> None:
        self._name, self._stall = name, stall
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._turned = self._looked = time.monotonic()
        self._warned = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sublet-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _turn(self) -> None:
        """The loop turns: it calls this."""
        blocked, self._turned = time.monotonic() - self._turned, time.monotonic()
        if self._warned:
            log.warning("the event loop turns again, after %.1f s", blocked)
            self._warned = False

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            now = time.monotonic()
            if now - self._looked > LAG:  # this thread has not run either
                log.warning("this process was stopped, or starved of CPU, for %.1f s", now - self._looked)
                self._turned = now
            self._looked = now
            self._look(now - self._turned)
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError:  # the loop is closed: nothing to watch
                return

    def _look(self, silent: float) -> None:
        if silent > LAG and not self._warned:
            self._warned = True
            log.warning("the event loop is blocked by %s: no heartbeats meanwhile; await there, or make it a plain function",
                        self._culprit())  # fmt: skip
        if self._stall is not None and silent > self._stall:
            log.error(
                "stalled: the event loop has been blocked for %.0f s by %s; leaving", silent, self._culprit()
            )
            os._exit(
                1
            )  # nothing else ends this process: what it holds comes back when the leases end, or by its successor

    def _culprit(self) -> str:
        """Which task it is, and where it is."""
        frame = sys._current_frames().get(self._thread_id)  # the documented way to see another thread's stack
        name = self._name(asyncio.current_task(self._loop))
        return f"{name}, {_place(frame)}" if frame else name


def _place(frame: FrameType) -> str:
    return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
