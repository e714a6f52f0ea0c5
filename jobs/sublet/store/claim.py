"""The claims of one process: they may wait for markers, give back what an abandoned one took, and fire schedules in passing."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublet.connection.blocking import Ears
from sublet.connection.routing import Routes
from sublet.connection.settings import Settings
from sublet.errors import JobsError, NoNamespace
from sublet.model import Claimed, Ending, Lease, Release
from sublet.operations.operations import Operations
from sublet.protocol import verbs
from sublet.protocol.plan import follow
from sublet.protocol.scripts import Call
from sublet.store.outage_log import Outage
from sublet.store.wakeups import Markers

log = logging.getLogger(__name__)

SOON = 0.1
"""Seconds until a worker that was given jobs should claim again, when occurrences of schedules are being fired meanwhile."""

Run = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(slots=True)
class Asked:
    """What a claim asks for, each time that it asks."""

    worker: str
    queues: Sequence[str]
    n: int
    lease: float
    claim_id: str | None
    spent: bool = False
    """Has its id brought jobs, now or before? Then it brings no others."""

    def heard(self, call: Call[Claimed]) -> Call[Claimed]:
        """The same call, whose reply tells that."""

        def read(reply: Any) -> Claimed:
            self.spent = self.spent or reply[0] != b""  # a token, also when none of its jobs is held any more
            return call.read(reply)

        return replace(call, read=read)


class Claims:
    """The claims of a `Store`, by what it sends calls with: `anew` is for one that was told that there is no namespace."""

    def __init__(
        self,
        settings: Settings,
        operations: Operations,
        run: Run,
        anew: Run,
        prepare: Callable[[], Awaitable[None]],
        settle: Callable[[Sequence[Ending]], Awaitable[list[str]]],
        hurried: asyncio.Event,
        blocking: Any = None,
        routes: Routes | None = None,
    ) -> None:
        self._settings, self._operations, self._run, self._anew, self._prepare = (
            settings,
            operations,
            run,
            anew,
            prepare,
        )
        self._settle, self._hurried, self._blocking, self._routes = settle, hurried, blocking, routes
        self._markers: Markers | None = None
        self._unclaimed: set[asyncio.Future[None]] = set()
        self._firing: asyncio.Task[None] | None = None
        self._outage = Outage()

    async def claim(self, asked: Asked, wait: float) -> Claimed:
        """Take jobs (`Store.claim` says how)."""
        until = time.monotonic() + wait
        claimed = await self._claim_and_fire(asked)
        if self._markers:
            self._markers.look_in(claimed.next_in)
        if claimed.leases or asked.spent or asked.n <= 0 or wait <= 0 or self._hurried.is_set():
            return claimed
        markers = self._markers = self._markers or self._listen()
        with markers.waiting(
            [(self._operations.base_of_queue(queue), queue) for queue in asked.queues], claimed.next_in
        ) as waiter:
            while not self._hurried.is_set() and await markers.wait(waiter, until - time.monotonic()):
                claimed = await self._claim_and_fire(asked)
                if asked.spent and not claimed.leases:
                    return claimed  # somebody else has used its id: it was told of that, and nobody has looked for a job
                waiter.followed()
                markers.look_in(claimed.next_in)
                if claimed.leases:
                    return claimed
            return Claimed([], markers.next_in)

    def _listen(self) -> Markers:
        ears = Ears(self._routes, self._run) if self._routes else None
        return Markers(self._settings, self._run, self._operations.bases[0], self._blocking, ears)

    async def _claim_and_fire(self, asked: Asked) -> Claimed:
        """Claim, and see to the occurrences of schedules that have come: before the answer if there is no job, else beside the jobs."""
        claimed = await self._claim_once(asked)
        if not claimed.come:
            return claimed
        firing = self._fire(asked.worker)
        if claimed.leases or asked.spent:
            return claimed._replace(next_in=min(claimed.next_in, SOON))
        await asyncio.shield(firing)
        return (await self._claim_once(asked))._replace(come=False)

    def _fire(self, by: str) -> "asyncio.Task[None]":
        """Fire what has come: one firing of this process at a time, whoever leaves meanwhile."""
        if self._firing is None or self._firing.done():
            self._firing = self._abandon(self._fire_due(by))
        return self._firing

    async def _fire_due(self, by: str) -> None:
        try:
            await follow(self._run, self._operations.fire(by))
            self._outage.over()
        except JobsError as error:  # the next claim or tick tries again, and no claim fails for it
            self._outage.failed("fire the occurrences of schedules", error)
        except Exception as error:  # noqa: BLE001  # nor for what nobody thought of; its words may have a payload in them
            self._outage.failed("fire the occurrences of schedules", JobsError(type(error).__name__))

    async def _claim_once(self, asked: Asked) -> Claimed:
        by_base: dict[str, list[str]] = {}
        for queue in asked.queues:
            by_base.setdefault(self._operations.base_of_queue(queue), []).append(queue)
        if (
            asked.claim_id and len(by_base) > 1
        ):  # sent again, it must not take from a partition where it found nothing before
            before = replace(asked, n=0)
            claimed = await self._claim_each(by_base, before)
            asked.spent = before.spent
            held = {self._operations.base_of_job(lease.id) for lease in claimed.leases}
            if (
                asked.spent and held and asked.n > 0
            ):  # once more there, for jobs: that marks the claim as asked for again
                by_base = {base: own for base, own in by_base.items() if base in held}
                return await self._claim_each(by_base, replace(asked, n=len(claimed.leases) + 1))
            if asked.spent:
                return claimed
        return await self._claim_each(by_base, asked)

    async def _claim_each(self, by_base: Mapping[str, Sequence[str]], asked: Asked) -> Claimed:
        leases: list[Lease] = []
        next_in, come = 2.0, False
        for base, own in by_base.items():
            try:
                claimed = await self._claim_safely(base, own, asked, leases)
            except JobsError:
                if leases:  # what was taken elsewhere must not be lost; whoever asks again hears of the error
                    return Claimed(leases, 0.0, come)
                raise
            leases += claimed.leases
            next_in, come = min(next_in, claimed.next_in), come or claimed.come
        return Claimed(leases, next_in, come)

    async def _claim_safely(
        self, base: str, queues: Sequence[str], asked: Asked, leases: Sequence[Lease]
    ) -> Claimed:
        """Claim in one partition. If the caller is cancelled, what it has taken so far is given back."""
        room = max(0, min(asked.n - len(leases), verbs.CLAIM_MAX))
        request: dict[str, Any] = dict(worker=asked.worker, lease=asked.lease, queues=queues)
        request["claim_id"] = asked.claim_id or secrets.token_urlsafe(16)
        call = asked.heard(verbs.claim(base, n=room, **request))
        await self._prepare()  # who leaves before it was asked has nothing to give back
        try:
            try:
                claimed: Claimed = await self._run(call)
            except NoNamespace:
                claimed = await self._anew(call)
            return claimed
        except asyncio.CancelledError:
            self._abandon(self._give_back(verbs.claim(base, n=0, **request), leases))
            raise

    async def _give_back(self, again: Call[Claimed], leases: Sequence[Lease]) -> None:
        """Ask once more what a claim has brought, which its id tells for 10 s, and release that and some more leases."""
        try:
            claimed = await self._run(again)
            await self.give_back((*leases, *claimed.leases), "abandoned: the claimer left")
        except JobsError as error:
            log.warning("a claim was abandoned (%s); what it took comes back when its lease ends", error)

    async def give_back(self, leases: Sequence[Lease], reason: str) -> None:
        """Release leases that their claimer will never hear of: at once, and also if whoever asks for it is cancelled.

        Raises Unavailable: the jobs come back when their leases end, then.
        """
        await asyncio.shield(self._abandon(self._release(leases, reason)))

    async def _release(self, leases: Sequence[Lease], reason: str) -> None:
        await self._settle([Release(lease, 0, reason) for lease in leases])

    def _abandon(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Give something back, whoever has left: closing waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._unclaimed.add(task)
        task.add_done_callback(self._unclaimed.discard)
        return task

    def hurry(self) -> None:
        """Have no claim wait any more."""
        if self._markers:
            self._markers.hurry()

    async def aclose(self) -> None:
        """Give back what abandoned claims brought, and let go of the blocking connection. Who claims later makes another."""
        markers, self._markers = self._markers, None  # who begins to wait meanwhile has others
        if self._unclaimed:
            await asyncio.wait(self._unclaimed)
        if markers:
            await markers.aclose()
