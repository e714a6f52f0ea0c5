"""Claim jobs: two loops for each set of queues, so that two claims can be under way."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sublet.errors import Changed, Forbidden, Unavailable, Unfit
from sublet.model import Lease, LostJob
from sublet.protocol import verbs
from sublet.store.source import JobSource
from sublet.worker.capacity import QueueSet, QueueTurns
from sublet.worker.linger import IDLE, Linger
from sublet.worker.settle_loop import RETRY_AFTER
from sublet.worker.state import WorkerState

LOOPS = 2
AWAITED_SECONDS = 1.0
"""Most seconds between two claims of a worker with `drain` while a task of it waits for another job."""


@dataclass(frozen=True)
class ClaimConfig:
    """Options of a worker's claims: the worker's name, its queues and their turns, and the lease in seconds."""

    worker: str
    queues: Sequence[str]
    queue_sets: Sequence[QueueSet]
    turns: QueueTurns
    lease: float
    strict: bool = False
    life: str = ""
    """The name of this run of the worker if it has an exclusive identity; else empty."""
    drain: bool = False
    """Whether the worker ends when no job can be claimed and none runs."""
    ahead: bool = False
    """Whether the source can send a claim together with the blocking read that waits for a job."""


class ClaimLoops:
    """The loops that claim a worker's jobs, and call `start` with each lease. They call `lost` with jobs that
    a claim made dead, and `replaced` when another worker has taken over this one's identity.
    """

    def __init__(
        self,
        source: JobSource,
        config: ClaimConfig,
        state: WorkerState,
        start: Callable[[Lease], None],
        linger: Linger | None = None,
        lost: Callable[[LostJob], None] = lambda job: None,
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._lost, self._replaced = lost, replaced
        self._source, self._config, self._start, self._linger = source, config, start, linger
        self._state, self._capacity, self._budget = state, state.capacity, state.budget
        self._maintenance = MaintenanceTimer(lambda: self._request(config.queues, 0, 0), state)
        self._waits = asyncio.Lock()
        self._was_answered = False

    def start(self) -> list["asyncio.Task[None]"]:
        """Start the loops; return them as asyncio tasks. Each ends when it may claim no more, or as
        `ClaimConfig.drain` says. It raises Unfit, and Forbidden if no claim has been answered yet.
        """
        return [
            asyncio.create_task(self._run(queue_set))
            for queue_set in self._config.queue_sets
            for _ in range(LOOPS)
        ]

    def stop(self) -> list["asyncio.Task[None]"]:
        """Stop the maintenance timer, not the loops. Returns its last claim, if any, which may be under way."""
        return self._maintenance.stop()

    async def _run(self, queue_set: QueueSet) -> None:
        dry = False
        while not (self._state.stopping.is_set() or self._dismissed):
            await self._capacity.wait_until(
                lambda: self._capacity.free(queue_set) > 0 or self._is_closed(queue_set)
            )
            if self._is_closed(queue_set):
                # an attempt may not count in the end
                await self._capacity.wait_until(
                    lambda: not (self._state.attempts and self._is_closed(queue_set))
                )
                if self._is_closed(queue_set):
                    return
            if not dry:
                dry = await self._claim_now(queue_set)
            elif not self._config.drain:
                async with self._waits:
                    dry = await self._wait(IDLE)
            elif self._linger and (self._linger.seconds or not self._state.has_work):
                async with self._waits:
                    dry = self._dismissed or await self._wait_or_leave(self._linger)
            elif self._state.has_work:
                await self._wait_for_less_work()
                dry = False
            else:
                return

    def _is_closed(self, queue_set: QueueSet) -> bool:
        return self._capacity.exhausted or not self._budget.open(queue_set.queues)

    @property
    def _dismissed(self) -> bool:
        return self._linger is not None and self._linger.dismissed

    async def _claim_now(self, queue_set: QueueSet) -> bool:
        n = self._capacity.claim_size(queue_set)
        if n <= 0:
            return False
        return await self._claim(self._budget.open(queue_set.queues), n, queue_set.may_need_child, 0) < n

    async def _wait_for_less_work(self) -> None:
        # A failed job may be queued again, and an unsettled outcome may be lost
        # a job that others wait for may be submitted or fall due
        attempts, capacity = self._state.attempts, self._capacity
        before = (len(attempts), capacity.reserved, capacity.waiting)
        await capacity.wait_until(
            lambda: (len(attempts), capacity.reserved, capacity.waiting) != before,
            AWAITED_SECONDS if capacity.waiting else None,
        )

    async def _wait_or_leave(self, linger: Linger) -> bool:
        if self._state.has_work:
            if linger.in_pool and linger.left <= 0:
                return await self._wait_while_working()
            return await self._wait(linger.wait_seconds(has_work=True))
        if linger.left > 0:
            return await self._wait(linger.wait_seconds(has_work=False))
        await linger.ask_to_leave()
        return True

    async def _wait_while_working(self) -> bool:
        waiting = asyncio.create_task(self._wait(IDLE))
        return await self._first(waiting, lambda: not self._state.attempts, lambda: waiting.result())

    async def _wait(self, seconds: float) -> bool:
        able = [
            queue_set
            for queue_set in self._config.queue_sets
            if self._capacity.free(queue_set) > 0 and not self._is_closed(queue_set)
        ]
        if not able:
            return False
        n = min(self._capacity.claim_size(queue_set) for queue_set in able)
        may_need_child = any(queue_set.may_need_child for queue_set in able)
        queues = self._config.queues
        if len(able) < len(self._config.queue_sets):
            names = {queue for queue_set in able for queue in queue_set.queues}
            queues = [queue for queue in queues if queue in names]
        queues = self._budget.open(queues)
        if len(able) == len(self._config.queue_sets):
            return await self._claim(queues, n, may_need_child, seconds) < n
        # Given up when a child is free, for a claim of all queues.
        claiming = asyncio.create_task(self._claim(queues, n, may_need_child, seconds))
        return await self._first(
            claiming, lambda: self._capacity.has_free_child, lambda: claiming.result() < n
        )

    async def _first(
        self,
        claim: "asyncio.Task[int] | asyncio.Task[bool]",
        until: Callable[[], bool],
        dry: Callable[[], bool],
    ) -> bool:
        watching = asyncio.create_task(self._capacity.wait_until(until))
        try:
            await asyncio.wait([claim, watching], return_when=asyncio.FIRST_COMPLETED)
            return not claim.done() or dry()
        finally:
            for task in (claim, watching):
                task.cancel()
            await asyncio.wait([claim, watching])

    async def _claim(self, queues: Sequence[str], n: int, may_need_child: bool, wait: float) -> int:
        if self._linger:
            await self._linger.not_asking.wait()
        if self._dismissed:
            return 0
        with self._capacity.reserve(n, may_need_child):
            try:
                return await self._request(queues, n, wait)
            except Unavailable as error:
                if isinstance(error, Unfit) or (isinstance(error, Forbidden) and not self._was_answered):
                    raise
                self._state.outage.failed("claim", error)
        await asyncio.sleep(self._state.outage.pause(RETRY_AFTER))
        return n

    async def _request(self, queues: Sequence[str], n: int, wait: float) -> int:
        config = self._config
        asked = config.turns.order(queues)
        order: dict[str, Any] = {"strict": True} if config.strict and verbs.is_wide(asked) else {}
        order |= {"life": config.life} if config.life else {}
        if (
            config.ahead and wait and len(queues) == len(config.queues)
        ):  # otherwise a free child ends the wait
            order["ahead"] = True
        try:
            claimed = await self._source.claim(
                worker=config.worker, queues=asked, n=n, lease=config.lease, wait=wait, **order
            )
        except Changed:
            self._replaced()
            return 0
        config.turns.record(asked, (lease.queue for lease in claimed.leases))
        self._state.outage.over()
        self._was_answered = True
        self._maintenance.set(claimed.next_in)
        for job in claimed.dead:
            self._lost(job)
        for lease in claimed.leases:
            self._start(lease)
        return len(claimed.leases)


class MaintenanceTimer:
    """Calls `claim_nothing`, which does maintenance, when the next job falls due, unless an open claim does it."""

    def __init__(self, claim_nothing: Callable[[], Awaitable[object]], state: WorkerState) -> None:
        self._claim_nothing, self._state = claim_nothing, state
        self._timer: asyncio.TimerHandle | None = None
        self._claim: asyncio.Task[None] | None = None

    def set(self, seconds: float) -> None:
        """Do the maintenance in so many seconds. Replaces an earlier time."""
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def stop(self) -> list["asyncio.Task[None]"]:
        """Stop the timer. Returns its last claim, if any, for the caller to cancel."""
        if self._timer:
            self._timer.cancel()
        return [self._claim] if self._claim else []

    def _start(self) -> None:
        if not self._state.capacity.reserved and not self._state.stopping.is_set():
            self._claim = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._claim_nothing()
        except Unavailable as error:
            self._state.outage.failed("do the maintenance", error)
            self.set(RETRY_AFTER)
