"""`Claims` makes the claims of one process: it waits for jobs, fires due schedules, and releases jobs that no
caller gets.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublet.connection.blocking import WakeupReader
from sublet.connection.routing import RoutingTransport
from sublet.connection.settings import Settings
from sublet.connection.transport import follow
from sublet.errors import JobsError, NoNamespace, Unavailable
from sublet.model import Claimed, Ending, Lease, LostJob, Release
from sublet.operations.operations import Operations
from sublet.protocol import keys, verbs
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call
from sublet.store.outage_log import OutageLog
from sublet.store.waiting.claim_ahead import ClaimAhead, claim_ahead
from sublet.store.waiting.discovery import POLL_SECONDS, REST, Discovery
from sublet.store.waiting.ready_queues import ReadyQueues, Selection
from sublet.store.waiting.wakeups import WakeUps

log = logging.getLogger(__name__)

STALE = 2 * POLL_SECONDS
"""A claim with patterns or over 32 queues starts a search for jobs if the last began so many seconds ago."""
SOON = 0.1
"""If a schedule is due, a worker that got jobs should claim again within so many seconds."""
MEMO_SECONDS = 10.0
"""For so many seconds Redis remembers which leases a claim got."""

Run = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(slots=True)
class ClaimRequest:
    """A claim's arguments, and what its calls have found."""

    worker: str
    queues: Sequence[str]
    n: int
    lease: float
    claim_id: str | None
    strict: bool = False
    life: str = ""
    selection: Selection | None = None
    """The queues and patterns, if there are patterns or over 32 queues; else None."""
    woken: bool = False
    """Whether a wake-up has just named a queue of `selection`."""
    spent: bool = False
    """Whether a call with this claim id has got jobs, even if none is still leased."""
    dead: tuple[LostJob, ...] = ()
    """Jobs with expired leases that the calls made dead."""
    ahead: bool = False
    """Whether a call may be sent to Redis before there is a job, behind the blocking read."""
    answered: ClaimAhead | None = None
    """The call sent ahead, from its reply until the claim uses it; else None."""

    def observe(self, call: Call[Claimed]) -> Call[Claimed]:
        """Return a copy of the call. When its reply is parsed, `spent` and `dead` are updated."""

        def read(reply: Any) -> Claimed:
            self.spent = self.spent or reply[0] != b""  # a token, even if no job is leased any more
            claimed = call.read(reply)
            self.dead += claimed.dead
            return claimed

        return call._replace(read=read)


class Claims:
    """Makes the claims of a `Store`. Once `hurried` is set, no claim begins to wait."""

    def __init__(
        self,
        settings: Settings,
        operations: Operations,
        run: Run,
        recreate: Run,
        prepare: Callable[[], Awaitable[None]],
        settle: Callable[[Sequence[Ending]], Awaitable[list[str]]],
        hurried: asyncio.Event,
        blocking: Any = None,
        routes: RoutingTransport | None = None,
    ) -> None:
        self._settings = settings
        self._operations = operations
        self._run = run
        self._recreate = recreate
        self._prepare = prepare
        self._settle = settle
        self._hurried = hurried
        self._blocking = blocking
        self._routes = routes
        self._ready = ReadyQueues(operations.bases, operations.base_of_queue)
        self._discovery = Discovery(run, self._ready, self._found)
        self._wakeups: WakeUps | None = None
        self._unclaimed: set[asyncio.Future[None]] = set()
        self._firing: asyncio.Task[None] | None = None
        self._dry: tuple[str, frozenset[str], float] | None = None
        self._outage = OutageLog()
        self._closing = False

    async def claim(self, request: ClaimRequest, wait: float) -> Claimed:
        """Claim jobs. While there are none, and no job became dead, claim again at each wake-up and poll, for up
        to `wait` seconds.
        """
        claim = self._claim_wide if verbs.is_wide(request.queues) else self._claim
        claimed = await claim(request, wait)
        return claimed._replace(dead=request.dead) if request.dead else claimed

    async def _claim_wide(self, request: ClaimRequest, wait: float) -> Claimed:
        request.selection, began = self._ready.selection(request.queues), time.monotonic()
        with self._discovery.serving(request.selection):
            claimed = await self._claim(request, wait)
            if claimed.leases or request.spent or request.n <= 0 or wait > 0:
                return claimed
            # Only a search shows that there is none
            await self._discovery.since(request.selection, began)
            return await self._claim_and_fire(request)

    async def _claim(self, request: ClaimRequest, wait: float) -> Claimed:
        until = time.monotonic() + wait
        claimed = self._known_to_be_dry(request) or await self._claim_and_fire(request)
        if self._wakeups:
            self._wakeups.poll_within(claimed.next_in)
        if (
            claimed.leases
            or request.spent
            or request.dead
            or request.n <= 0
            or wait <= 0
            or self._hurried.is_set()
        ):
            self._note_if_dry(request, claimed)
            return claimed
        wakeups = self._wakeups = self._wakeups or self._wake_ups()
        names = () if request.selection else request.queues
        queues = [(self._operations.base_of_queue(queue), queue) for queue in names]
        prepare = self._ahead_maker(request, {base for base, _ in queues})
        with wakeups.waiting(queues, claimed.next_in, request.selection, prepare) as waiter:
            while not self._hurried.is_set() and (
                self._is_ready(request) or await wakeups.wait(waiter, until - time.monotonic())
            ):
                if request.selection and (named := waiter.named):
                    self._ready.add(named[0], [named[1]])
                    request.woken = True
                request.answered = waiter.take_answered()
                claimed = await self._claim_and_fire(request)
                if request.spent and not claimed.leases:
                    return claimed
                waiter.claimed()
                request.woken = False
                wakeups.poll_within(claimed.next_in)
                if claimed.leases or request.dead:
                    return claimed
            return Claimed([], wakeups.next_in)

    def _note_if_dry(self, request: ClaimRequest, claimed: Claimed) -> None:
        # It leaves no wake-up, so the next may wait at once.
        if len(claimed.leases) < min(request.n, verbs.CLAIM_MAX) and not request.selection:
            until = time.monotonic() + claimed.next_in
            self._dry = request.worker, frozenset(request.queues), until

    def _known_to_be_dry(self, request: ClaimRequest) -> Claimed | None:
        dry, self._dry = self._dry, None
        if not (dry and request.ahead and dry[:2] == (request.worker, frozenset(request.queues))):
            return None
        left = dry[2] - time.monotonic()
        return Claimed([], left) if left > 0 else None

    def _wake_ups(self) -> WakeUps:
        reader = WakeupReader(self._routes, self._run) if self._routes else None
        return WakeUps(
            self._settings, self._run, self._operations.bases[0], self._blocking, reader, self._withdraw
        )

    def _ahead_maker(self, request: ClaimRequest, bases: set[str]) -> Callable[[], ClaimAhead] | None:
        if not request.ahead or len(bases) != 1:
            return None
        (base,) = bases

        def prepare() -> ClaimAhead:
            sent = claim_ahead(base, request.worker, request.lease, request.queues, request.life)
            sent.call = request.observe(sent.call)
            return sent

        return prepare

    def _found(self, base: str, queues: Sequence[str]) -> None:
        if self._wakeups:
            self._wakeups.found(base, queues)

    async def _claim_and_fire(self, request: ClaimRequest) -> Claimed:
        claimed = await self._claim_once(request)
        self._dry = None  # this answer is newer
        if not claimed.come:
            return claimed
        firing = self._fire(request.worker)
        if claimed.leases or request.spent:
            return claimed._replace(next_in=min(claimed.next_in, SOON))
        await asyncio.shield(firing)
        return (await self._claim_once(request))._replace(come=False)

    def _fire(self, by: str) -> "asyncio.Task[None]":
        if self._firing is None or self._firing.done():
            self._firing = self._in_background(self._fire_due(by))
        return self._firing

    async def _fire_due(self, by: str) -> None:
        try:
            await follow(self._run, self._operations.fire(by))
            self._outage.over()
        except JobsError as error:
            self._outage.failed("fire the occurrences of schedules", error)
        except Exception as error:  # noqa: BLE001  # its message may contain a payload
            self._outage.failed("fire the occurrences of schedules", JobsError(type(error).__name__))

    async def _claim_once(self, request: ClaimRequest) -> Claimed:
        answered, request.answered = request.answered, None
        if answered:
            return answered.claimed
        by_base: dict[str, list[str]] = {}
        if request.selection:
            await self._discovery.refresh(request.selection, time.monotonic() - STALE)
            by_base = {base: [] for base in self._ready.bases(request.selection, request.strict)}
        else:
            for queue in request.queues:
                by_base.setdefault(self._operations.base_of_queue(queue), []).append(queue)
        if request.claim_id and len(by_base) > 1:
            # A repeat must not take jobs where the first found none
            repeat = replace(request, n=0)
            claimed = await self._claim_each(by_base, repeat)
            request.spent = repeat.spent
            held = {self._operations.base_of_job(lease.id) for lease in claimed.leases}
            if request.spent and held and request.n > 0:
                # n > 0 flags the claim as repeated
                by_base = {base: own for base, own in by_base.items() if base in held}
                return await self._claim_each(by_base, replace(request, n=len(claimed.leases) + 1))
            if request.spent:
                return claimed
        return await self._claim_each(by_base, request)

    async def _claim_each(self, by_base: Mapping[str, Sequence[str]], request: ClaimRequest) -> Claimed:
        leases: list[Lease] = []
        next_in, come = 2.0, False
        for base, own in by_base.items():
            try:
                if request.selection:
                    claimed = await self._claim_ready(base, request, request.selection, leases)
                else:
                    claimed = await self._claim_in(base, own, request, leases)
                    leases += claimed.leases
            except JobsError:
                if leases:  # the next claim raises the error
                    return Claimed(leases, 0.0, come)
                raise
            next_in, come = min(next_in, claimed.next_in), come or claimed.come
        return Claimed(leases, next_in, come)

    def _is_ready(self, request: ClaimRequest) -> bool:
        return request.selection is not None and self._ready.any(request.selection)

    async def _claim_ready(
        self, base: str, request: ClaimRequest, selection: Selection, leases: list[Lease]
    ) -> Claimed:
        most = verbs.QUEUES_MAX - len(selection.patterns)
        while True:
            wanted = min(request.n - len(leases), verbs.CLAIM_MAX)
            asked = self._ready.pick(base, selection, most if wanted > 0 else 0, request.strict)
            room = min(wanted, most) - len(asked)
            if room > 0 and selection.patterns and not request.woken:
                await self._take_wakeups(base, selection, room)
                asked = self._ready.pick(base, selection, most, request.strict)
            claimed = await self._claim_in(base, [*selection.patterns, *asked], request, leases)
            self._ready.claimed(base, selection, asked, claimed.leases, wanted)
            leases += claimed.leases
            if not asked or len(leases) >= request.n or (request.claim_id and request.spent):
                return claimed

    async def _take_wakeups(self, base: str, selection: Selection, most: int) -> None:
        lists = [keys.wake(base, pattern) for pattern in selection.patterns]
        found: list[Any] = await self._run(together([("LPOP", key, most) for key in lists], list))
        names = [shown(name) for own in found for name in own or ()]
        self._ready.add(base, [name for name in names if name in selection and keys.is_name(name)])

    async def _claim_in(
        self, base: str, queues: Sequence[str], request: ClaimRequest, leases: Sequence[Lease]
    ) -> Claimed:
        left = max(0, min(request.n - len(leases), verbs.CLAIM_MAX))
        arguments: dict[str, Any] = dict(worker=request.worker, lease=request.lease, queues=queues)
        arguments["claim_id"] = request.claim_id or keys.new_claim_id(request.life)
        call = request.observe(verbs.claim(base, n=left, **arguments))
        await self._prepare()  # cancelled here, the caller has taken nothing
        try:
            try:
                claimed: Claimed = await self._run(call)
            except NoNamespace:
                claimed = await self._recreate(call)
            return claimed
        except asyncio.CancelledError:
            self._in_background(self._release_claim(verbs.claim(base, n=0, **arguments), leases))
            raise

    async def _release_claim(self, again: Call[Claimed], leases: Sequence[Lease]) -> None:
        try:
            claimed = await self._run(again)
            await self.give_back(
                (*leases, *claimed.leases),
                "given back: the worker had stopped waiting for this claim",
            )
        except JobsError as error:
            log.warning(
                "the jobs of a cancelled claim could not be released (%s): they are queued again when their leases expire",
                error,
            )

    def _withdraw(self, sent: ClaimAhead) -> None:
        self._in_background(self._release_ahead(sent))

    async def _release_ahead(self, sent: ClaimAhead) -> None:
        until = time.monotonic() + MEMO_SECONDS
        while True:
            try:
                if await self._run(sent.withdrawal):
                    return
                break
            except Unavailable:  # it may run yet
                if self._closing or time.monotonic() > until:
                    break
            await asyncio.sleep(REST)
        await self._release_claim(sent.repeat, ())

    async def give_back(self, leases: Sequence[Lease], reason: str) -> None:
        """Release claimed jobs that no worker will run, even if the caller is cancelled. Store `reason` with the attempts."""
        await asyncio.shield(self._in_background(self._release(leases, reason)))

    async def _release(self, leases: Sequence[Lease], reason: str) -> None:
        await self._settle([Release(lease, 0, reason, "abandoned") for lease in leases])

    def _in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._unclaimed.add(task)
        task.add_done_callback(self._unclaimed.discard)
        return task

    def hurry(self) -> None:
        """End the waits of claims now; they return without jobs. Set `hurried` first."""
        if self._wakeups:
            self._wakeups.hurry()

    async def aclose(self) -> None:
        """Wait for background tasks and close the blocking connection; the next wait opens another."""
        wakeups, self._wakeups, self._closing = self._wakeups, None, True
        await self._discovery.aclose()
        if wakeups:
            await wakeups.aclose()
        if self._unclaimed:
            await asyncio.wait(self._unclaimed)
        self._closing = False
