"""Asks for jobs: two claims of a line at a time, so that one is under way while the jobs of the other run; and keeps the
appointments for what falls due, even when every slot is taken and nothing else would make us ask."""

import asyncio
from collections.abc import Callable, Sequence

from jobs.budget import Budget
from jobs.errors import Unavailable, Unfit
from jobs.model import Lease
from jobs.outage import Outage
from jobs.room import Line, Room
from jobs.settling import REST
from jobs.source import JobSource

LOOPS = 2
"""Claims of one line that may be under way at once."""
IDLE = 10.0
"""Seconds that one claim may wait for a job."""


class Claiming:
    """The claims of one worker, until `over` is set."""

    def __init__(
        self,
        source: JobSource,
        worker: str,
        queues: Sequence[str],
        lease: float,
        room: Room,
        budget: Budget,
        start: Callable[[Lease], None],
        unfinished: Callable[[], int],
        outage: Outage,
        over: asyncio.Event,
    ) -> None:
        self._source, self._worker, self._queues, self._lease = source, worker, queues, lease
        self._room, self._budget, self._start, self._unfinished, self._outage = room, budget, start, unfinished, outage
        self._over = over
        self._appointment: asyncio.TimerHandle | None = None
        self._errand: asyncio.Task[None] | None = None

    def loops(self, lines: Sequence[Line], drain: bool) -> list["asyncio.Task[None]"]:
        """Begin. Each ends when there is nothing more to take: with `drain` when its queues are dry."""
        return [asyncio.create_task(self._claim_forever(line, drain)) for line in lines for _ in range(LOOPS)]

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
        while not self._over.is_set():
            await self._room.until(lambda: self._room.free(line) > 0 or self._closed(line))
            if self._closed(line):
                await self._room.until(lambda: not self._unfinished())
                return
            if not dry:
                dry = await self._claim(line, wait=0)
            elif not drain:
                async with line.one_waits:
                    dry = await self._claim(line, wait=IDLE)
            elif self._unfinished() or self._room.asking:  # what runs may fail, and be back; what is not settled may be lost
                before = (self._unfinished(), self._room.asking)
                await self._room.until(lambda: (self._unfinished(), self._room.asking) != before)  # noqa: B023  # not called later
                dry = False
            else:
                return

    async def _claim(self, line: Line, wait: float) -> bool:
        """Claim what fits and start it. True when there was less than was asked for."""
        n = self._room.free(line)
        n = min(n, max(-(-self._room.slots // LOOPS), self._room.ahead() * line.plain))
        queues = self._budget.open(line.queues)
        if n <= 0 or not queues:
            return False
        with self._room.asked(n, line):
            try:
                return await self._claim_from(queues, n, wait) < n
            except Unavailable as error:
                if isinstance(error, Unfit):
                    raise
                self._outage.failed("claim", error)
        await asyncio.sleep(REST)
        return False  # nobody has said that there is nothing

    async def _claim_from(self, queues: Sequence[str], n: int, wait: float) -> int:
        claimed = await self._source.claim(worker=self._worker, queues=queues, n=n, lease=self._lease, wait=wait)
        self._outage.over()
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
