"""Extend all leases of a worker in one call, renew its registration, send its tasks' reports."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from sublet.errors import NoNamespace, OutOfMemory, Unavailable
from sublet.execution.attempt import Attempt, Why, put_back
from sublet.model import Beat, Note
from sublet.store.outage_log import OutageLog
from sublet.store.source import JobSource

log = logging.getLogger("sublet.worker.worker")

NEWS_EVERY = 0.25
"""Least seconds between two sends of tasks' reports (progress, checkpoints, logs)."""
RENEW_EVERY = 5.0
"""About the seconds between two renewals of the registration."""
CANCEL_AGAIN_AFTER = 5.0


class Heartbeat:
    """Sends one worker's heartbeats and reports, renews its registration, and ends attempts that are
    cancelled or lost.
    """

    def __init__(
        self,
        source: JobSource,
        attempts: Collection[Attempt],
        lease: float,
        renew: Callable[[], Coroutine[Any, Any, None]],
        outage: OutageLog,
    ) -> None:
        self._source, self._outage = source, outage
        self._attempts, self._lease, self._renew = attempts, lease, renew
        self._every = min(lease / 3, 5.0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewed_at = time.monotonic()
        self._news = asyncio.Event()
        self._notified = False

    def notify(self) -> None:
        """Make `run` send the tasks' reports soon. Safe from any thread."""
        if not self._notified and self._loop:
            self._notified = True
            self._loop.call_soon_threadsafe(self._news.set)

    async def run(self) -> None:
        """Until cancelled, send heartbeats (every third of the lease, at most 5 s), renewals and reports."""
        self._loop, due = asyncio.get_running_loop(), time.monotonic() + self._every
        while True:
            try:
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            self._notified = False
            for attempt in self._attempts:
                attempt.context.flush()
            if time.monotonic() >= due:
                due = time.monotonic() + self._every
                await self._beat_all()
            else:
                await self._send([attempt for attempt in self._attempts if attempt.reports.progress])
            await asyncio.sleep(max(0.0, min(NEWS_EVERY, due - time.monotonic())))

    async def _beat_all(self) -> None:
        for attempt in self._attempts:
            self._cancel_again(attempt)
        beside = []
        if time.monotonic() - self._renewed_at >= RENEW_EVERY - self._every / 2:
            self._renewed_at = time.monotonic()
            beside.append(self._renew())
        await self._send([attempt for attempt in self._attempts if attempt.why is not Why.LOST], *beside)

    def _cancel_again(self, attempt: Attempt) -> None:
        if attempt.cancelled_at and time.monotonic() - attempt.cancelled_at > CANCEL_AGAIN_AFTER:
            log.warning(
                "task %s (job %s) was cancelled and runs on: it swallows CancelledError, and should raise it again",
                attempt.lease.task,
                attempt.lease.id,
            )
            attempt.cancel_again()

    async def _send(self, attempts: Sequence[Attempt], *beside: Coroutine[Any, Any, None]) -> None:
        notes = [(attempt, note) for attempt in self._attempts if (note := attempt.note())]
        sending = [asyncio.ensure_future(self._note(notes))] if notes else []
        for attempt, _ in notes:
            attempt.sending = sending[0]
        beats = [self._beat(attempts)] if attempts else []
        for outcome in await asyncio.gather(*sending, *beats, *beside, return_exceptions=True):
            if isinstance(outcome, Unavailable):
                self._outage.failed("send heartbeats", outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _note(self, notes: Sequence[tuple[Attempt, Note]]) -> None:
        try:
            # The heartbeat of the same turn fails with NoNamespace, and acts on it.
            with contextlib.suppress(NoNamespace):
                await self._source.note([note for _, note in notes])
        except OutOfMemory as error:  # the jobs go on; the notes are sent again
            put_back(notes)
            self._outage.hindered("store checkpoints and logs", error)
        except (Unavailable, asyncio.CancelledError):
            put_back(notes)
            raise

    async def _beat(self, attempts: Sequence[Attempt]) -> None:
        beats = [Beat(attempt.lease, attempt.reports.progress) for attempt in attempts]
        try:
            answers: Sequence[int | str] = await self._source.heartbeat(beats, lease=self._lease)
        except NoNamespace:
            answers = ["NOT_FOUND"] * len(beats)
        self._outage.over()
        for attempt, beat, answer in zip(attempts, beats, answers, strict=True):
            if attempt.reports.progress is beat.progress:
                attempt.reports.progress = b""
            if answer == "CANCEL_REQUESTED":
                attempt.end(Why.CANCELLED)
            elif isinstance(answer, str):
                attempt.end(Why.LOST)
