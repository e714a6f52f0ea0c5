"""Runs jobs: claim → heartbeat beside → run → complete, fail or release.

Several small loops over one set of attempts. Two claim, so that one request is under way while the jobs of the other run;
two settle what has ended; one sends heartbeats for all; one keeps the appointments for what falls due. The source packs what
they send in the same turn into one round trip. The worker knows nothing of Redis.
"""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jobs.attempt import Attempt, Why
from jobs.errors import NoNamespace, Unavailable, Unfit
from jobs.model import Beat, Completion, Ending, Failure, Lease, Release
from jobs.registry import App
from jobs.runner import Runner
from jobs.source import JobSource

log = logging.getLogger(__name__)

LOOPS = 2
"""Claims, and settlements, that may be under way at once."""
IDLE = 10.0
"""Seconds that one claim may wait for a job."""
REST = 0.5
"""Seconds to rest after the source did not answer."""
LAST_WORDS = 5.0
"""Seconds that a stopping worker spends on telling the source what has ended."""

Report = Callable[[str, Lease | None, str], None]
"""Hears what happens: an event's name, the lease it is about, and more words."""


@dataclass
class Summary:
    """What a worker has done: endings accepted by kind, ghosts (endings refused, for the lease was lost), and seconds."""

    completed: int = 0
    failed: int = 0
    released: int = 0
    refused: int = 0
    seconds: float = 0.0


def worker_name() -> str:
    """Who this process is: host, pid, and chance, so that no two are the same."""
    host = "".join(c for c in socket.gethostname() if c.isalnum() or c in "_.-")[:64] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class Worker:
    """Takes jobs from a source and runs them, `slots` at a time, until it is stopped, dry, or out of time.

    No job is claimed that has no free slot. A worker may be killed at any line: what it held comes back when the leases end.
    """

    def __init__(
        self,
        app: App,
        source: JobSource,
        *,
        queues: Sequence[str] | None = None,
        slots: int | None = None,
        lease: float = 30.0,
        grace: float = 8.0,
        name: str | None = None,
        report: Report = lambda event, lease, words: None,
    ) -> None:
        self.source, self.report = source, report
        self.queues = list(queues or app.queues())
        self.slots = slots or (100 if all(task.run == "loop" for task in app.tasks.values()) else os.cpu_count() or 1)
        self.lease, self.grace = lease, grace
        self.name = name or worker_name()
        self.summary = Summary()
        self._attempts: set[Attempt] = set()
        self._endings: list[tuple[Attempt, Ending]] = []
        self._busy = 0
        self._asking = 0
        self._changed, self._settleable, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._one_waits = asyncio.Lock()
        self._appointment: asyncio.TimerHandle | None = None
        self._errand: asyncio.Task[bool] | None = None
        self._runner = Runner(app.tasks, self.slots)

    def stop(self) -> None:
        """Take no more jobs; let the running ones finish for `grace` seconds, give the rest back. Called again: give back now."""
        if self._over.is_set():
            self.grace = 0.0
        self._over.set()
        self._changed.set()

    async def run(self, *, drain: bool = False, seconds: float | None = None) -> Summary:
        """Work until stopped; with `drain` until there is nothing to claim; with `seconds` at most that long."""
        started = time.monotonic()
        claiming = [asyncio.create_task(self._claim_forever(drain)) for _ in range(LOOPS)]
        beside = [asyncio.create_task(self._settle_forever()) for _ in range(LOOPS)]
        beside.append(asyncio.create_task(self._beat_forever()))
        dry = asyncio.create_task(asyncio.wait(claiming, return_when=asyncio.FIRST_EXCEPTION))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([dry, over, *beside], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            await _end([dry, over, *claiming])
            await self._wind_down()
        finally:
            if self._appointment:
                self._appointment.cancel()
            await _end([dry, over, *claiming, *beside, *([self._errand] if self._errand else [])])
            await self._runner.aclose()
        self.summary.seconds = round(time.monotonic() - started, 3)
        return self.summary

    async def _claim_forever(self, drain: bool) -> None:
        dry = False
        while not self._over.is_set():
            await self._until(lambda: self._busy + self._asking < self.slots)
            if not dry:
                dry = await self._claim(wait=0)
            elif not drain:
                async with self._one_waits:
                    dry = await self._claim(wait=IDLE)
            elif self._attempts or self._asking:  # what runs may fail, and be back; what is not settled may be lost
                before = (len(self._attempts), self._asking)
                await self._until(lambda: (len(self._attempts), self._asking) != before)  # noqa: B023  # not called later
                dry = False
            else:
                return

    async def _claim(self, wait: float, n: int | None = None) -> bool:
        """Claim what fits and start it. True when there was less than was asked for."""
        room = min(self.slots - self._busy - self._asking, -(-self.slots // LOOPS)) if n is None else n
        if room <= 0 and n is None:
            return False
        self._asking += room
        try:
            claimed = await self.source.claim(worker=self.name, queues=self.queues, n=room, lease=self.lease, wait=wait)
        except Unavailable as error:
            if isinstance(error, Unfit):
                raise
            log.warning("cannot claim: %s", error)
            await asyncio.sleep(REST)
            return False  # nobody has said that there is nothing
        finally:
            self._asking -= room
            self._changed.set()
        self._make_appointment(claimed.next_in)
        for lease in claimed.leases:
            self._start(lease)
        return len(claimed.leases) < room

    def _make_appointment(self, seconds: float) -> None:
        """See to what falls due, even when every slot is taken and nothing else would make us ask."""
        if self._appointment:
            self._appointment.cancel()
        self._appointment = asyncio.get_running_loop().call_later(seconds, self._keep_appointment)

    def _keep_appointment(self) -> None:
        if not self._asking and not self._over.is_set():
            self._errand = asyncio.get_running_loop().create_task(self._claim(wait=0, n=0))

    def _start(self, lease: Lease) -> None:
        attempt = Attempt(lease)
        loop = asyncio.get_running_loop()
        self._attempts.add(attempt)
        self._busy += 1
        attempt.running = loop.create_task(self._runner.perform(attempt))
        attempt.running.add_done_callback(partial(self._ended, attempt))
        if lease.timeout_ms is not None:
            attempt.timer = loop.call_later(lease.timeout_ms / 1000, attempt.end, Why.TIMED_OUT)
        self.report("started", lease, lease.recovered)

    def _ended(self, attempt: Attempt, _: object) -> None:
        self._busy -= 1
        if attempt.timer:
            attempt.timer.cancel()
        ending = attempt.ending()
        if ending is None:
            self._attempts.discard(attempt)
            self.report("lost", attempt.lease, "its lease was given to another, or the job is over")
        else:
            self._endings.append((attempt, ending))
            self._settleable.set()
        self._changed.set()

    async def _settle_forever(self) -> None:
        while True:
            await self._settleable.wait()
            self._settleable.clear()
            batch, self._endings = self._endings, []
            if batch:
                await self._settle(batch)
                self._changed.set()

    async def _settle(self, batch: list[tuple[Attempt, Ending]]) -> None:
        try:
            answers = await self.source.settle([ending for _, ending in batch])
        except NoNamespace:
            answers = ["NOT_FOUND"] * len(batch)
        except Unavailable as error:
            log.warning("cannot settle %d jobs yet: %s", len(batch), error)
            self._endings += batch
            await asyncio.sleep(REST)
            self._settleable.set()
            return
        for (attempt, ending), answer in zip(batch, answers, strict=True):
            self._attempts.discard(attempt)
            self._note(ending, answer)

    def _note(self, ending: Ending, answer: str) -> None:
        """Count an ending, and say it."""
        event = "refused" if answer in ("LEASE_LOST", "NOT_FOUND") else _EVENTS[type(ending)]
        setattr(self.summary, event, getattr(self.summary, event) + 1)
        self.report(event, ending.lease, answer if isinstance(ending, Completion) else f"{_why(ending)}: {answer}")

    async def _beat_forever(self) -> None:
        while True:
            await asyncio.sleep(min(self.lease / 3, 5.0))
            attempts = list(self._attempts)
            if attempts:
                await self._beat(attempts)

    async def _beat(self, attempts: list[Attempt]) -> None:
        """Extend all leases in one call, and act on what is heard."""
        beats = [Beat(attempt.lease, attempt.progress) for attempt in attempts]
        try:
            answers: Sequence[int | str] = await self.source.heartbeat(beats, lease=self.lease)
        except NoNamespace:
            answers = ["NOT_FOUND"] * len(beats)
        except Unavailable as error:
            log.warning("cannot send heartbeats: %s", error)
            return
        for attempt, beat, answer in zip(attempts, beats, answers, strict=True):
            if attempt.progress is beat.progress:
                attempt.progress = b""
            if answer == "CANCEL_REQUESTED":
                attempt.end(Why.CANCELLED)
            elif isinstance(answer, str):
                attempt.end(Why.LOST)

    async def _wind_down(self) -> None:
        """Let what runs finish within the grace, give the rest back, and have all of it settled."""
        until = time.monotonic() + self.grace
        await self._until(lambda: not self._busy or time.monotonic() >= until or not self.grace, self.grace)
        for attempt in list(self._attempts):
            attempt.end(Why.STOPPING)
        await self._until(lambda: not self._attempts, LAST_WORDS)

    async def _until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a condition that only changes where `_changed` is set; False when the seconds are over first."""
        until = None if seconds is None else time.monotonic() + seconds
        while not condition():
            self._changed.clear()
            try:
                async with asyncio.timeout(None if until is None else max(0.0, until - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                return condition()
        return True


_EVENTS: dict[type, str] = {Completion: "completed", Failure: "failed", Release: "released"}


def _why(ending: Ending) -> str:
    if isinstance(ending, Failure):
        return f"{ending.code} {ending.message}".strip()
    return ending.reason if isinstance(ending, Release) else ""


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and see them gone. Raises what one of them died of."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
