"""A thread that notices a blocked event loop, and logs the task that blocks it."""

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

CHECK_EVERY = 0.25
BLOCKED_AFTER = 1.0
"""After so many seconds of a blocked event loop a warning is logged."""

Name = Callable[["asyncio.Task[Any] | None"], str]


class Watchdog:
    """Logs when this thread's event loop is blocked, with `name` of the asyncio task; after `stall` seconds
    of that (None: never), ends the process with exit code 1.
    """

    def __init__(self, name: Name, stall: float | None = None) -> None:
        self._name, self._stall = name, stall
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._turned = self._checked = time.monotonic()
        self._warned = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sublet-watchdog", daemon=True)

    def start(self) -> None:
        """Start the watching thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the watching thread."""
        self._over.set()

    def _turn(self) -> None:
        blocked, self._turned = time.monotonic() - self._turned, time.monotonic()
        if self._warned:
            log.warning("the event loop runs again, after %.1f s", blocked)
            self._warned = False

    def _watch(self) -> None:
        while not self._over.wait(CHECK_EVERY):
            now = time.monotonic()
            # This thread was late too: the loop is not to blame.
            if now - self._checked > BLOCKED_AFTER:
                log.warning(
                    "this process was stopped, or starved of CPU, for %.1f s: if that recurs, give it more CPU",
                    now - self._checked,
                )
                self._turned = now
            self._checked = now
            self._check(now - self._turned)
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError:
                return

    def _check(self, silent: float) -> None:
        if silent > BLOCKED_AFTER and not self._warned:
            self._warned = True
            log.warning(
                "the event loop is blocked by %s: no heartbeats meanwhile: use await there, or make the task a plain function",
                self._culprit(),
            )
        if self._stall is not None and silent > self._stall:
            log.error(
                "stalled: the event loop has been blocked for %.0f s by %s: ending the process",
                silent,
                self._culprit(),
            )
            os._exit(1)

    def _culprit(self) -> str:
        frame = sys._current_frames().get(self._thread_id)
        name = self._name(asyncio.current_task(self._loop))
        return f"{name}, {_location(frame)}" if frame else name


def _location(frame: FrameType) -> str:
    return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
