"""Keeps a process alive: starts it, asks it for signs of life, ends it when it is frozen, and starts it anew when it is gone."""

import asyncio
import signal
import time
from typing import Protocol

from sublet.devtools.platform.reports import Reporter
from sublet.errors import JobsError

GLANCE = 0.1
"""Seconds between two looks at whether it is still there."""
ASK = 1.0
"""Seconds between two questions whether it answers."""
MISSES = 3
"""Questions in a row without an answer after which it is taken for frozen. Counted, for a machine that slept is not frozen."""
STEADY = 10.0
"""Seconds after which a start is taken for a success: what ends sooner, again and again, is started less and less often."""
PAUSE, LONGEST = 0.2, 5.0
"""Seconds before the second start in a row, doubled with each further one, and the longest."""


class Service(Protocol):
    """A process that is to be there."""

    name: str

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def start(self) -> str:
        """Start it, where it was before; return when it answers, with what to say of it. Blocks. Raises JobsError."""
        ...

    @property
    def exit(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        ...

    async def answers(self) -> bool:
        """Does it answer? Reporter so within a few seconds."""
        ...

    def stop(self, at_once: bool = False) -> None:
        """End it, and see it gone. Blocks."""
        ...

    def close(self) -> None:
        """Be started no more; a start that is under way may fail, then."""
        ...


class Supervisor:
    """Keeps one piece alive, from `start` to `stop`."""

    def __init__(self, piece: Service, report: Reporter) -> None:
        self.piece, self._report = piece, report
        self.up = asyncio.Event()
        """It is there, as far as is known."""
        self._failures = 0
        self._began = 0.0

    async def start(self) -> None:
        """Start it for the first time. Raises JobsError: then there is no point in going on."""
        self._came(await asyncio.to_thread(self.piece.start))

    async def run(self) -> None:
        """See that it is there, until cancelled."""
        while True:
            why = await self._until_gone()
            self.up.clear()
            if time.monotonic() - self._began > STEADY:
                self._failures = 0
            self._report(self.piece.name, "died", f"{why}; it is started anew")
            await self._start_anew()

    async def _start_anew(self) -> None:
        while not self.up.is_set():
            if self._failures:
                await asyncio.sleep(min(LONGEST, PAUSE * 2 ** (self._failures - 1)))
            self._failures += 1
            try:
                words = await asyncio.to_thread(self.piece.start)
            except JobsError as error:
                self._report(self.piece.name, "failed", f"{' '.join(str(error).split())}; tried again")
            else:
                self._came(words)

    def _came(self, words: str) -> None:
        self._began = time.monotonic()
        self.up.set()
        self._report(self.piece.name, "ready", words, pid=self.piece.pid)

    async def _until_gone(self) -> str:
        """Wait for its end, or bring it about when it does not answer. Why it is gone."""
        misses, ask_at = 0, time.monotonic() + ASK
        while self.piece.exit is None:
            await asyncio.sleep(GLANCE)
            if time.monotonic() < ask_at:
                continue
            misses = 0 if await self.piece.answers() else misses + 1
            ask_at = time.monotonic() + ASK
            if misses >= MISSES and self.piece.exit is None:
                await asyncio.to_thread(self.piece.stop, True)
                return "did not answer any more and was killed"
        return f"died ({ended(self.piece.exit)})"

    async def stop(self, at_once: bool = False) -> None:
        """End it."""
        self.up.clear()
        self.piece.close()
        await asyncio.to_thread(self.piece.stop, at_once)


def ended(code: int) -> str:
    """How a process ended, in words: `exit 3`, `SIGKILL`."""
    try:
        return f"exit {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
