"""Report the outcomes of attempts, many at a time, and again after an outage."""

import asyncio
from collections.abc import Callable

from sublet.errors import JobsError, LeaseLost, NoNamespace, NotFound, OutOfMemory, QueueFull, Unavailable
from sublet.execution.attempt import Attempt, put_back
from sublet.model import Ending
from sublet.store.outage_log import OutageLog
from sublet.store.source import JobSource

RETRY_AFTER = 0.5
"""Most seconds between a call without an answer and the next one."""
FULL_AGAIN = 1.0
"""Seconds between two tries to settle an attempt whose following jobs find a full queue."""
FULL_BATCH = 50
"""So many outcomes are sent even while earlier ones lack an answer; fewer wait for that answer."""

Settled = Callable[[Attempt, Ending, str], None]
"""Called with each attempt whose outcome was answered, the outcome, and the answer: the job's new state, or a
final refusal.
"""


class SettleLoop:
    """The outcomes of a worker that have no answer yet; `run` sends them."""

    def __init__(self, source: JobSource, settled: Settled, outage: OutageLog) -> None:
        self._source, self._settled, self._outage = source, settled, outage
        self._endings: list[tuple[Attempt, Ending]] = []
        self._under_way = 0
        self._waiting = asyncio.Event()

    def put(self, attempt: Attempt, ending: Ending) -> None:
        """Add an outcome to report."""
        self._endings.append((attempt, ending))
        if not self._under_way or len(self._endings) >= FULL_BATCH:
            self._waiting.set()

    async def run(self) -> None:
        """Report outcomes until cancelled. Several asyncio tasks may run this at once."""
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
            await self._send_notes([attempt for attempt, _ in batch])
            await self._send_chunks([attempt for attempt, _ in batch])
            answers = await self._source.settle([ending for _, ending in batch])
        except NoNamespace:
            answers = ["NOT_FOUND"] * len(batch)
        except Unavailable as error:
            self._outage.failed(f"settle {len(batch)} jobs", error)
            self._endings += batch
            await asyncio.sleep(self._outage.pause(RETRY_AFTER))
            self._waiting.set()
            return
        self._outage.over()
        for (attempt, ending), answer in zip(batch, answers, strict=True):
            if answer.startswith("QUEUE_FULL "):
                self._wait_for_room(attempt, ending, answer)
            else:
                self._settled(attempt, ending, answer)

    def _wait_for_room(self, attempt: Attempt, ending: Ending, answer: str) -> None:
        # meanwhile heartbeats keep the lease, until the attempt's timeout
        self._outage.hindered(
            f"store the jobs that follow job {ending.lease.id}", QueueFull(answer.partition(" ")[2])
        )
        asyncio.get_running_loop().call_later(FULL_AGAIN, self.put, attempt, ending)

    async def _send_chunks(self, attempts: list[Attempt]) -> None:
        ends = [attempt.reports.emitter.finish() for attempt in attempts if attempt.reports.emitter]
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(error, LeaseLost | NotFound | NoNamespace):
                continue  # the outcome gets the same answer
            is_away = isinstance(error, Unavailable) and not error.lasting
            if isinstance(error, JobsError) and not is_away:
                self._outage.hindered("store the chunks of a stream", error)
            elif error:
                raise error

    async def _send_notes(self, attempts: list[Attempt]) -> None:
        # Notes go first, also those of the heartbeat loop: afterwards the lease is gone
        under_way = {
            attempt.sending for attempt in attempts if attempt.sending and not attempt.sending.done()
        }
        if under_way:
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
        except OutOfMemory as error:  # the outcome matters more
            self._outage.hindered("store checkpoints and logs", error)
        except Unavailable:
            put_back(notes)
            raise
