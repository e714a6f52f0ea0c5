"""Asks for jobs: two claims of a line at a time, so that one is under way while the jobs of the other run; and keeps the
appointments for what falls due, even when every slot is taken and nothing else would make us ask."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from sublet.errors import Forbidden, Unavailable, Unfit
from sublet.model import Lease
from sublet.store.outage_log import Outage
from sublet.store.source import JobSource
from sublet.worker.capacity import Line, Room
from sublet.worker.settle_loop import REST
from sublet.worker.time_budget import Budget

LOOPS = 2
"""Claims of one line that may be under way at once."""
IDLE = 10.0
"""Seconds that one claim may wait for a job."""
LOOK = 1.0
"""Seconds, at least, that a worker waits whose pool could not spare it, before it asks again."""


class Stay:
    """How long a worker that drains stays when there is nothing to do, and whether it may go then.

    With `others`, a pool's, it asks whenever it has nothing to do at the moment and has not asked for that long. For work goes
    round: in a crew that is far too large everybody is given a job now and then, and nobody is ever idle for long.
    """

    def __init__(self, seconds: float, may_go: Callable[[], Awaitable[bool]], others: bool = False) -> None:
        self.seconds, self._may_go, self.others = seconds, may_go, others
        self.since = time.monotonic()
        """When it was told to stay, or came; without others also when it last had something to do."""
        self.dismissed = False
        """It may go, and takes nothing more."""

    @property
    def left(self) -> float:
        """Seconds until it may ask."""
        return self.since + self.seconds - time.monotonic()

    def was_busy(self) -> None:
        """Something was done."""
        if not self.others:
            self.since = time.monotonic()

    async def ask(self) -> None:
        """Ask whether it may go. Raises Unavailable."""
        self.dismissed = await self._may_go()
        self.since = time.monotonic() + max(0.0, LOOK - self.seconds)


class Claiming:
    """The claims of one worker, until `over` is set."""

    def __init__(
        self,
        source: JobSource,
        worker: str,
        queues: Sequence[str],
        lines: Sequence[Line],
        lease: float,
        room: Room,
        budget: Budget,
        start: Callable[[Lease], None],
        unfinished: Callable[[], int],
        outage: Outage,
        over: asyncio.Event,
        stay: Stay | None = None,
    ) -> None:
        self._source, self._worker, self._queues, self._lease = source, worker, queues, lease
        self._room, self._budget, self._start, self._unfinished, self._outage = (
            room,
            budget,
            start,
            unfinished,
            outage,
        )
        self._over, self._stay = over, stay
        self._lines = lines
        self._one_waits = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._was_answered = False
        """Was a claim ever answered? One that never was, for want of rights, would not be, however often it asked."""
        self._appointment: asyncio.TimerHandle | None = None
        self._errand: asyncio.Task[None] | None = None

    def loops(self, drain: bool) -> list["asyncio.Task[None]"]:
        """Begin. Each ends when there is nothing more to take: with `drain` when its queues are dry (and the stay is over)."""
        return [
            asyncio.create_task(self._claim_forever(line, drain))
            for line in self._lines
            for _ in range(LOOPS)
        ]

    def stop(self) -> list["asyncio.Task[None]"]:
        """Make no more appointments; the task that keeps one may still be under way."""
        if self._appointment:
            self._appointment.cancel()
        return [self._errand] if self._errand else []

    def _closed(self, line: Line) -> bool:
        """Is nothing more to be taken from a line?"""
        return self._room.spent or not self._budget.open(line.queues)

    async def _claim_forever(self, line: Line, drain: bool) -> None:
        dry = False
        while not (self._over.is_set() or self._dismissed):
            await self._room.until(lambda: self._room.free(line) > 0 or self._closed(line))
            if self._closed(line):
                await self._room.until(lambda: not self._unfinished())
                return
            if not dry:
                n = self._room.share(line)
                dry = n > 0 and await self._claim(self._budget.open(line.queues), n, line.plain, 0) < n
            elif not drain:
                async with self._one_waits:
                    dry = await self._wait(IDLE)
            elif self._stay and (self._stay.seconds or not self._is_at_work):
                async with self._one_waits:
                    dry = self._dismissed or await self._linger(self._stay)
            elif self._unfinished() or self._room.asking:
                # A running job may fail and be queued again; an outcome that is not settled may be lost.
                before = (self._unfinished(), self._room.asking)
                await self._room.until(lambda: (self._unfinished(), self._room.asking) != before)  # noqa: B023  # not called later
                dry = False
            else:
                return

    @property
    def _dismissed(self) -> bool:
        return self._stay is not None and self._stay.dismissed

    @property
    def _is_at_work(self) -> bool:
        """Does anything run, or may anything come of what was asked for?"""
        return bool(self._unfinished() or self._room.asking)

    async def _linger(self, stay: Stay) -> bool:
        """Wait for a job, or when the stay is over ask to go; nobody claims meanwhile. True when there was nothing to do."""
        if self._is_at_work and stay.others and stay.left <= 0:
            return await self._wait_while_at_work()
        if self._is_at_work:
            return await self._wait(min(IDLE, max(stay.seconds, LOOK)))
        if stay.left > 0:
            return await self._wait(min(IDLE, stay.left))
        self._open.clear()
        try:
            await stay.ask()
        except Unavailable as error:
            self._outage.failed("ask whether to go", error)
            await asyncio.sleep(REST)
        finally:
            self._open.set()
        return True

    async def _wait_while_at_work(self) -> bool:
        """Wait for a job, but no longer than anything runs. True when there was nothing to do."""
        waiting = asyncio.create_task(self._wait(IDLE))
        finishing = asyncio.create_task(self._room.until(lambda: not self._unfinished()))
        try:
            await asyncio.wait([waiting, finishing], return_when=asyncio.FIRST_COMPLETED)
            return not waiting.done() or waiting.result()
        finally:
            for task in (waiting, finishing):
                task.cancel()
            await asyncio.wait([waiting, finishing])

    async def _wait(self, seconds: float) -> bool:
        """Wait for a job from any queue for which there is room. True when there was less than was asked for."""
        able = [line for line in self._lines if self._room.free(line) > 0 and not self._closed(line)]
        if not able:
            return False
        n, plain = min(self._room.share(line) for line in able), any(line.plain for line in able)
        queues = self._budget.open(
            [queue for queue in self._queues if any(queue in line.queues for line in able)]
        )
        if len(able) == len(self._lines):
            return await self._claim(queues, n, plain, seconds) < n
        claiming = asyncio.create_task(self._claim(queues, n, plain, seconds))
        watching = asyncio.create_task(
            self._room.until(lambda: self._room.has_child)
        )  # then wait for plain functions, too
        try:
            await asyncio.wait([claiming, watching], return_when=asyncio.FIRST_COMPLETED)
            return not claiming.done() or claiming.result() < n
        finally:
            for task in (claiming, watching):
                task.cancel()
            await asyncio.wait([claiming, watching])

    async def _claim(self, queues: Sequence[str], n: int, plain: bool, wait: float) -> int:
        """Claim `n` jobs and start them. How many there were; as many as were asked for, if nobody has said so."""
        await self._open.wait()
        if self._dismissed:
            return 0
        with self._room.asked(n, plain):
            try:
                return await self._claim_from(queues, n, wait)
            except Unavailable as error:
                if isinstance(error, Unfit) or (isinstance(error, Forbidden) and not self._was_answered):
                    raise
                self._outage.failed("claim", error)
        await asyncio.sleep(REST)
        return n

    async def _claim_from(self, queues: Sequence[str], n: int, wait: float) -> int:
        claimed = await self._source.claim(
            worker=self._worker, queues=queues, n=n, lease=self._lease, wait=wait
        )
        self._outage.over()
        self._was_answered = True
        self._make_appointment(claimed.next_in)
        for lease in claimed.leases:
            self._start(lease)
        return len(claimed.leases)

    def _make_appointment(self, seconds: float) -> None:
        if self._appointment:
            self._appointment.cancel()
        self._appointment = asyncio.get_running_loop().call_later(seconds, self._keep_appointment)

    def _keep_appointment(self) -> None:
        if not self._room.asking and not self._over.is_set():
            self._errand = asyncio.get_running_loop().create_task(self._do_upkeep())

    async def _do_upkeep(self) -> None:
        try:
            await self._claim_from(self._queues, 0, 0)
        except Unavailable as error:
            self._outage.failed("do the upkeep", error)
            self._make_appointment(REST)
