"""Tells the source how attempts have ended: what ends in one turn of the loop goes together, and nothing is dropped."""

import asyncio
from collections.abc import Callable

from sublet.errors import NoNamespace, Unavailable
from sublet.execution.attempt import Attempt
from sublet.model import Ending
from sublet.store.outage_log import Outage
from sublet.store.source import JobSource

REST = 0.5
"""Seconds to rest after the source did not answer."""
MANY = 50
"""Endings that are told beside others; fewer wait until those are."""

Settled = Callable[[Attempt, Ending, str], None]
"""Hears of an ending and what the source answered to it."""


class Settling:
    """The endings that are on their way to the source."""

    def __init__(self, source: JobSource, settled: Settled, outage: Outage) -> None:
        self._source, self._settled, self._outage = source, settled, outage
        self._endings: list[tuple[Attempt, Ending]] = []
        self._under_way = 0
        self._waiting = asyncio.Event()

    def put(self, attempt: Attempt, ending: Ending) -> None:
        """Have an ending told."""
        self._endings.append((attempt, ending))
        if not self._under_way or len(self._endings) >= MANY:
            self._waiting.set()

    async def run(self) -> None:
        """Tell them, until cancelled. Several may run at once."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            batch, self._endings = self._endings, []
            if batch:
                self._under_way += 1
                try:
                    await self._settle(batch)
                finally:
                    self._under_way -= 1
                if self._endings:
                    self._waiting.set()

    async def _settle(self, batch: list[tuple[Attempt, Ending]]) -> None:
        try:
            await self._keep_notes([attempt for attempt, _ in batch])
            answers = await self._source.settle([ending for _, ending in batch])
        except NoNamespace:
            answers = ["NOT_FOUND"] * len(batch)
        except Unavailable as error:
            self._outage.failed(f"settle {len(batch)} jobs", error)
            self._endings += batch
            await asyncio.sleep(REST)
            self._waiting.set()
            return
        self._outage.over()
        for (attempt, ending), answer in zip(batch, answers, strict=True):
            self._settled(attempt, ending, answer)

    async def _keep_notes(self, attempts: list[Attempt]) -> None:
        """What the tasks have left with their jobs goes first: afterwards their leases are no more."""
        under_way = {
            attempt.sending for attempt in attempts if attempt.sending and not attempt.sending.done()
        }
        if under_way:  # what the pulse is sending must not come after the end either
            await asyncio.wait(under_way)
        notes = []
        for attempt in attempts:
            attempt.context.flush()
            note = attempt.note()
            if note:
                notes.append((attempt, note))
        if not notes:
            return
        try:
            await self._source.note([note for _, note in notes])
        except Unavailable:
            for attempt, note in notes:
                attempt.put_back(note)
            raise
