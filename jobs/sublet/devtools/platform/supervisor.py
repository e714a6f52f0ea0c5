"""Supervise a service: check its health, kill it when frozen, and restart it after its end."""

import asyncio
import signal
import time
from typing import Protocol

from sublet.devtools.platform.reports import Reporter
from sublet.errors import JobsError

POLL_SECONDS = 0.1
HEALTH_SECONDS = 1.0
FAILURES_MAX = 3
"""After so many failed health checks in a row a service is killed."""
STABLE_SECONDS = 10.0
"""A service that ran so long is restarted at once; after shorter runs, every restart but the first is
delayed.
"""
DELAY, DELAY_MAX = 0.2, 5.0


class Service(Protocol):
    """A process that a `Supervisor` keeps running."""

    name: str

    @property
    def pid(self) -> int:
        """The process id of the service; 0 before the start."""
        ...

    def start(self) -> str:
        """Start the service, if possible at its previous address; return a description when it answers.
        Blocks. Raises JobsError.
        """
        ...

    @property
    def exit(self) -> int | None:
        """The process's exit code, negative for a signal; None while it runs; 0 before the start."""
        ...

    async def is_healthy(self) -> bool:
        """Return within a few seconds whether the service answers."""
        ...

    def stop(self, at_once: bool = False) -> None:
        """Stop the service and wait for its end; `at_once` with SIGKILL instead of SIGTERM. Blocks."""
        ...

    def close(self) -> None:
        """From now on, let `start` fail; a start under way may fail, too."""
        ...


class Supervisor:
    """Keeps one service running: kills it when it does not answer, and restarts it when it has ended."""

    def __init__(self, service: Service, report: Reporter) -> None:
        self.service, self._report = service, report
        self.up = asyncio.Event()
        """Set while the service runs."""
        self._failures = 0
        self._began = 0.0

    async def start(self) -> None:
        """Start the service for the first time. Raises JobsError."""
        self._started(await asyncio.to_thread(self.service.start))

    async def run(self) -> None:
        """Watch the service, and restart it, until cancelled."""
        while True:
            why = await self._wait_for_end()
            self.up.clear()
            if time.monotonic() - self._began > STABLE_SECONDS:
                self._failures = 0
            self._report(self.service.name, "died", f"{why}; it is restarted")
            await self._restart()

    async def _restart(self) -> None:
        while not self.up.is_set():
            if self._failures:
                await asyncio.sleep(min(DELAY_MAX, DELAY * 2 ** (self._failures - 1)))
            self._failures += 1
            try:
                words = await asyncio.to_thread(self.service.start)
            except JobsError as error:
                self._report(
                    self.service.name, "failed", f"{' '.join(str(error).split())}; it is tried again"
                )
            else:
                self._started(words)

    def _started(self, words: str) -> None:
        self._began = time.monotonic()
        self.up.set()
        self._report(self.service.name, "ready", words, pid=self.service.pid)

    async def _wait_for_end(self) -> str:
        failures, check_at = 0, time.monotonic() + HEALTH_SECONDS
        while self.service.exit is None:
            await asyncio.sleep(POLL_SECONDS)
            if time.monotonic() < check_at:
                continue
            failures = 0 if await self.service.is_healthy() else failures + 1
            check_at = time.monotonic() + HEALTH_SECONDS
            if failures >= FAILURES_MAX and self.service.exit is None:
                await asyncio.to_thread(self.service.stop, True)
                return "did not answer and was killed"
        return f"died ({exit_reason(self.service.exit)})"

    async def stop(self, at_once: bool = False) -> None:
        """Stop the service; it is not restarted."""
        self.up.clear()
        self.service.close()
        await asyncio.to_thread(self.service.stop, at_once)


def exit_reason(code: int) -> str:
    """Return an exit code as text: `exit 3`, or a signal such as `SIGKILL`."""
    try:
        return f"exit {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
