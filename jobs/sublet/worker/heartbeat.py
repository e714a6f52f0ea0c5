"""A worker's signs of life: heartbeats for all its leases in one call, its own on the register, and its tasks' news.

What tasks say between two heartbeats (progress, checkpoints, log lines) is sent when it is said, a few times a second at most.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from sublet.errors import NoNamespace, Unavailable
from sublet.execution.attempt import Attempt, Why
from sublet.model import Beat, Note
from sublet.store.outage_log import Outage
from sublet.store.source import JobSource

log = logging.getLogger("sublet.worker.worker")

NEWS = 0.25
"""Seconds between two sendings of news, at least."""
SEEN = 5.0
"""Seconds between two signs of life of the worker itself."""
STUBBORN = 5.0
"""Seconds after which a task that was told to stop, and runs on, is told again."""


class Pulse:
    """The heartbeat of one worker."""

    def __init__(
        self,
        source: JobSource,
        attempts: Collection[Attempt],
        lease: float,
        seen: Callable[[], Coroutine[Any, Any, None]],
        outage: Outage,
    ) -> None:
        self._source, self._attempts, self._lease, self._seen, self._outage = (
            source,
            attempts,
            lease,
            seen,
            outage,
        )
        self._every = min(lease / 3, 5.0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seen_at = time.monotonic()
        self._news = asyncio.Event()
        self._heard = False

    def hear(self) -> None:
        """A task has told something. Safe from any thread, and cheap."""
        if not self._heard and self._loop:
            self._heard = True
            self._loop.call_soon_threadsafe(self._news.set)

    async def run(self) -> None:
        """Beat until cancelled."""
        self._loop, due = asyncio.get_running_loop(), time.monotonic() + self._every
        while True:
            try:
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            self._heard = False
            for attempt in self._attempts:
                attempt.context.flush()
            if time.monotonic() >= due:
                due = time.monotonic() + self._every
                await self._beat_all()
            else:
                await self._send([attempt for attempt in self._attempts if attempt.said.progress])
            await asyncio.sleep(max(0.0, min(NEWS, due - time.monotonic())))

    async def _beat_all(self) -> None:
        """Extend all leases, and be seen: one round trip, as the source packs what is asked in one turn."""
        for attempt in self._attempts:
            self._nudge(attempt)
        beside = []
        if time.monotonic() - self._seen_at >= SEEN - self._every / 2:
            self._seen_at = time.monotonic()
            beside.append(self._seen())
        await self._send([attempt for attempt in self._attempts if attempt.why is not Why.LOST], *beside)

    def _nudge(self, attempt: Attempt) -> None:
        """A task that swallows its cancellation is told again."""
        if attempt.told_at and time.monotonic() - attempt.told_at > STUBBORN:
            log.warning(
                "task %s (job %s) was told to stop and runs on: it swallows CancelledError",
                attempt.lease.task,
                attempt.lease.id,
            )
            attempt.tell_again()

    async def _send(self, attempts: Sequence[Attempt], *beside: Coroutine[Any, Any, None]) -> None:
        """Heartbeats of these attempts, the notes of all, and what is to go beside them, in one turn."""
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
            with contextlib.suppress(NoNamespace):  # the heartbeat beside it hears of that, too
                await self._source.note([note for _, note in notes])
        except (Unavailable, asyncio.CancelledError):
            for attempt, note in notes:
                attempt.put_back(note)
            raise

    async def _beat(self, attempts: Sequence[Attempt]) -> None:
        """Extend leases, and act on what is heard."""
        beats = [Beat(attempt.lease, attempt.said.progress) for attempt in attempts]
        try:
            answers: Sequence[int | str] = await self._source.heartbeat(beats, lease=self._lease)
        except NoNamespace:
            answers = ["NOT_FOUND"] * len(beats)
        self._outage.over()
        for attempt, beat, answer in zip(attempts, beats, answers, strict=True):
            if attempt.said.progress is beat.progress:
                attempt.said.progress = b""
            if answer == "CANCEL_REQUESTED":
                attempt.end(Why.CANCELLED)
            elif isinstance(answer, str):
                attempt.end(Why.LOST)
