"""Jobs in Redis, for code on an event loop: the `JobSource` of workers and producers, and the plans of operators."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from jobs import keys, roster, verbs
from jobs.config import Settings
from jobs.errors import JobsError, NoNamespace
from jobs.model import (
    FINISHED,
    Beat,
    Card,
    Claimed,
    Completion,
    Ending,
    Failure,
    Lease,
    Note,
    Release,
    Standing,
    Submission,
    Submitted,
    WorkerInfo,
)
from jobs.plans import Layout
from jobs.scripts import Call
from jobs.transport import Plan, Transport, follow
from jobs.waiter import REREAD, Endings, Markers

T = TypeVar("T")
log = logging.getLogger(__name__)


class Store:
    """A namespace in Redis. Belongs to one event loop; connects on first use; makes the namespace where there is none.

    `client` and `blocking` replace the Redis clients that are made of the settings (for tests, and clients of your own).
    """

    def __init__(self, settings: Settings, client: Any = None, blocking: Any = None) -> None:
        self.settings = settings
        self.layout = Layout(settings)
        self._transport = Transport(settings, client)
        self._blocking = blocking
        self._markers: dict[tuple[str, ...], Markers] = {}
        self._endings: Endings | None = None
        self._unclaimed: set[asyncio.Future[None]] = set()
        self._ready = False
        self._preparing = asyncio.Lock()

    async def prepare(self) -> None:
        """Make the namespace where there is none. Raises Unfit for a server that is set to evict jobs."""
        async with self._preparing:
            if not self._ready:
                await follow(self._transport.run, self.layout.prepare())
                self._ready = True

    async def run(self, call: Call[T]) -> T:
        """Send one call."""
        if not self._ready:
            await self.prepare()
        return await self._transport.run(call)

    async def follow(self, plan: Plan[T]) -> T:
        """Carry out a plan of `self.layout`."""
        return await follow(self.run, plan)

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store jobs, as many as there are. Raises Invalid, Refused or Unavailable; sending the same again is safe."""
        return await self.follow(self.layout.submit(jobs))

    async def submit_each(self, jobs: Sequence[Submission]) -> list[Submitted | JobsError]:
        """Store jobs, each on its own: per job what became of it, or why it was refused. Raises Unavailable."""
        return await self.follow(self.layout.submit_each(jobs))

    async def claim(
        self, *, worker: str, queues: Sequence[str], n: int, lease: float, wait: float = 0, claim_id: str | None = None
    ) -> Claimed:
        """Take up to `n` jobs from the queues, in their order; with `wait`, stay up to that many seconds for the first one.

        A `claim_id` of the caller's own (22 to 64 random characters): the same again within 10 s gives what is still held.
        """
        until = time.monotonic() + wait
        while True:
            claimed = await self._claim_once(worker, queues, n, lease, claim_id)
            left = until - time.monotonic()
            if claimed.leases or left <= 0:
                return claimed
            await self._markers_of(queues).wait(min(left, claimed.next_in))

    async def _claim_once(self, worker: str, queues: Sequence[str], n: int, lease: float, claim_id: str | None) -> Claimed:
        by_base: dict[str, list[str]] = {}
        for queue in queues:
            by_base.setdefault(self.layout.of_queue(queue), []).append(queue)
        leases: list[Lease] = []
        next_in = 2.0
        for base, own in by_base.items():
            room = min(n - len(leases), verbs.CLAIM_MAX)
            request = dict(claim_id=claim_id or secrets.token_urlsafe(16), worker=worker, lease=lease, n=room, queues=own)
            claimed = await self._claim_safely(base, request, leases)
            leases += claimed.leases
            next_in = min(next_in, claimed.next_in)
        return Claimed(leases, next_in)

    async def _claim_safely(self, base: str, request: dict[str, Any], leases: Sequence[Lease]) -> Claimed:
        """Claim in one partition. If the caller is cancelled, what it has taken so far is given back."""
        call = verbs.claim(base, **request)
        try:
            try:
                return await self.run(call)
            except NoNamespace:
                self._ready = False
                return await self.run(call)
        except asyncio.CancelledError:
            giving_back = asyncio.ensure_future(self._give_back(verbs.claim(base, **request | {"n": 0}), leases))
            self._unclaimed.add(giving_back)
            giving_back.add_done_callback(self._unclaimed.discard)
            raise

    async def _give_back(self, again: Call[Claimed], leases: Sequence[Lease]) -> None:
        """Ask once more what a claim has brought, which its id tells for 10 s, and release that and some more leases."""
        try:
            claimed = await self.run(again)
            await self.give_back((*leases, *claimed.leases), "the claimer left")
        except JobsError as error:
            log.warning("a claim was abandoned (%s); what it took comes back when its lease ends", error)

    async def give_back(self, leases: Sequence[Lease], reason: str) -> None:
        """Release leases that their claimer will never hear of. Raises Unavailable: they come back when they end, then."""
        await self.settle([Release(lease, 0, reason) for lease in leases])

    def _markers_of(self, queues: Sequence[str]) -> Markers:
        names = tuple(keys.wake(self.layout.of_queue(queue), queue) for queue in queues)
        if names not in self._markers:
            self._markers[names] = Markers(self.settings, names, self._blocking)
        return self._markers[names]

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases, any number. Per lease its new end in ms, or LEASE_LOST, NOT_FOUND, CANCEL_REQUESTED."""
        ids = [beat.lease.id for beat in beats]
        return await self._spread(beats, ids, lambda base, some: verbs.heartbeat(base, some, lease=lease))

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """End attempts, any number and mix. Per ending the new state with its words, LEASE_LOST or NOT_FOUND."""
        answers: dict[int, str] = {}

        async def send(kind: type, verb: Any, most: int) -> None:
            own = [i for i, ending in enumerate(endings) if type(ending) is kind]
            if own:
                words = await self._spread([endings[i] for i in own], [endings[i].lease.id for i in own], verb, most)
                answers.update(zip(own, words, strict=True))

        await asyncio.gather(
            send(Completion, verbs.complete, verbs.SETTLE_MAX),
            send(Failure, verbs.fail, verbs.SETTLE_MAX),
            send(Release, verbs.release, verbs.BATCH),
        )
        return [answers[i] for i in range(len(endings))]

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Keep checkpoints and logs, any number. Per lease `noted`, LEASE_LOST or NOT_FOUND."""
        return await self._spread(notes, [note.lease.id for note in notes], verbs.note, verbs.SETTLE_MAX)

    async def enlist(self, card: Card) -> bool:
        """A worker's sign of life. True when it has been asked to finish and go."""
        return await self.run(verbs.enlist(self.layout.bases[0], card)) == "drain"

    async def workers(self) -> list[WorkerInfo]:
        """The workers on the register; what they hold is left out."""
        return await self.follow(roster.workers(self.layout.bases, jobs=False))

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """Strike off workers (name → life) that are gone for good and end their leases. How many those were."""
        return await self.follow(roster.reconcile(self.layout.bases, gone))

    async def leave(self, card: Card) -> None:
        """Strike off a worker that holds nothing any more."""
        await self.run(verbs.reconcile(self.layout.bases[0], card.worker, card.life, []))

    async def _spread(self, items: Sequence[Any], ids: Sequence[str], verb: Any, most: int = verbs.BATCH) -> list[Any]:
        """Send items to their partitions, in calls that are not too large, side by side; the answers come in the items' order."""
        by_base: dict[str, list[int]] = {}
        for i, job_id in enumerate(ids):
            by_base.setdefault(self.layout.of_id(job_id), []).append(i)
        chunks = [(base, c) for base, own in by_base.items() for c in verbs.batches(own, lambda i: verbs.weight(items[i]), most)]
        replies = await asyncio.gather(*(self.run(verb(b, [items[i] for i in chunk])) for b, chunk in chunks))
        answers: list[Any] = [None] * len(items)
        for (_, chunk), reply in zip(chunks, replies, strict=True):
            for i, answer in zip(chunk, reply, strict=True):
                answers[i] = answer
        return answers

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Where a job stands, as soon as it has ended or `wait` seconds are over."""
        base, until = self.layout.of_id(job_id), time.monotonic() + wait
        if self._endings is None:
            self._endings = Endings(self.settings, self._blocking)
        await self._endings.subscribe(base)
        with self._endings.expecting(job_id) as ended:
            while True:
                (standing,) = await self.run(verbs.watch(base, [job_id]))
                left = until - time.monotonic()
                if standing.state is None or standing.state in FINISHED or left <= 0:
                    return standing
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, REREAD)):
                        await ended.wait()

    async def aclose(self) -> None:
        """Give back what abandoned claims brought, and let go of all connections."""
        if self._unclaimed:
            await asyncio.wait(self._unclaimed)
        for markers in self._markers.values():
            await markers.aclose()
        if self._endings:
            await self._endings.aclose()
        await self._transport.aclose()
