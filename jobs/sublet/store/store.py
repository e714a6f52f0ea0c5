"""Jobs in Redis, for code on an event loop: the `JobSource` of workers and producers, and the plans of operators."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sublet.connection.routing import Routes, transport_for
from sublet.connection.settings import Settings
from sublet.errors import JobsError, NoNamespace
from sublet.model import (
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
from sublet.operations import workers as roster
from sublet.operations.operations import Operations
from sublet.protocol import verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.store.claim import Asked, Claims
from sublet.store.events import Tail
from sublet.store.results import Endings
from sublet.store.source import PoolSummoner

T = TypeVar("T")


class Store:
    """A namespace in Redis. Belongs to one event loop; connects on first use; makes the namespace where there is none.

    `client` and `blocking` replace the Redis clients that are made of the settings (for tests, and clients of your own).
    """

    def __init__(
        self,
        settings: Settings,
        client: Any = None,
        blocking: Any = None,
        operations: Operations | None = None,
    ) -> None:
        self.settings = settings
        self.operations = operations or Operations(settings)
        self._transport = transport_for(settings, client)
        self._routes = self._transport if isinstance(self._transport, Routes) else None
        self._blocking = blocking
        self._endings: Endings | None = None
        self._tail: Tail | None = None
        self._ready = False
        self._preparing: asyncio.Future[None] | None = None
        self.hurried = asyncio.Event()
        """Nobody is to wait any more."""
        self._claims = Claims(
            settings,
            self.operations,
            self.run,
            self._anew,
            self.prepare,
            self.settle,
            self.hurried,
            blocking,
            self._routes,
        )
        self.nudge: Callable[[Sequence[str]], None] = lambda queues: None
        """Called with the queues of each submit, so that a summoner can start workers for them."""
        self.summoner: PoolSummoner | None = None
        """Starts the workers of pools, if this process may: a tick calls it."""

    async def prepare(self) -> None:
        """Make the namespace where there is none. Raises Unfit for a server that is set to evict jobs."""
        if self._ready:
            return
        if (
            self._preparing is None
        ):  # one for all who ask meanwhile: if Redis is away, nobody waits for another's turn
            self._preparing = asyncio.ensure_future(self._transport.follow(self.operations.prepare()))
            self._preparing.add_done_callback(self._prepared)
        await asyncio.shield(self._preparing)

    def _prepared(self, preparing: "asyncio.Future[None]") -> None:
        self._preparing = None
        self._ready = not preparing.cancelled() and preparing.exception() is None

    async def run(self, call: Call[T]) -> T:
        """Send one call."""
        if not self._ready:
            await self.prepare()
        return await self._transport.run(call)

    async def _anew(self, call: Call[T]) -> T:
        """Send one call again that was told that there is no namespace: it is made."""
        self._ready = False
        return await self.run(call)

    async def follow(self, plan: Plan[T]) -> T:
        """Carry out a plan of `self.operations`."""
        if not self._ready:
            await self.prepare()
        return await self._transport.follow(plan)

    async def tend(self, plan: Plan[T]) -> T:
        """Carry out a plan that takes in nothing new: no namespace is made for it, and the server is asked nothing else."""
        return await self._transport.follow(plan)

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store jobs, as many as there are. Raises Invalid, Refused or Unavailable; sending the same again is safe."""
        stored = await self.follow(self.operations.submit(jobs))
        self.nudge([job.queue for job in jobs])
        return stored

    async def submit_each(self, jobs: Sequence[Submission]) -> list[Submitted | JobsError]:
        """Store jobs, each on its own: per job what became of it, or why it was refused. Raises Unavailable."""
        answers = await self.follow(self.operations.submit_each(jobs))
        self.nudge([job.queue for job in jobs])
        return answers

    async def claim(
        self,
        *,
        worker: str,
        queues: Sequence[str],
        n: int,
        lease: float,
        wait: float = 0,
        claim_id: str | None = None,
    ) -> Claimed:
        """Take up to `n` jobs from the queues, in their order; with `wait`, stay up to that many seconds for the first one.

        A `claim_id` of the caller's own (22 to 64 of A-Z a-z 0-9 _ . : -) makes it safe to send again: within 10 s the same id
        gives what of its jobs is still held, and waits for no others. If the caller is cancelled, at whatever moment, what the
        claim took is released at once; a caller that has the answer and cannot use it calls `give_back`.
        """
        return await self._claims.claim(Asked(worker, queues, n, lease, claim_id), wait)

    async def give_back(self, leases: Sequence[Lease], reason: str) -> None:
        """Release leases that their claimer will never hear of: at once, and also if whoever asks for it is cancelled.

        Raises Unavailable: the jobs come back when their leases end, then.
        """
        await self._claims.give_back(leases, reason)

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
                words = await self._spread(
                    [endings[i] for i in own], [endings[i].lease.id for i in own], verb, most
                )
                answers.update(zip(own, words, strict=True))

        await asyncio.gather(
            send(Completion, verbs.complete, verbs.COMPLETE_MAX),
            send(Failure, verbs.fail, verbs.FAIL_MAX),
            send(Release, verbs.release, verbs.SETTLE_MAX),
        )
        return [answers[i] for i in range(len(endings))]

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Keep checkpoints and logs, any number. Per lease `noted`, LEASE_LOST or NOT_FOUND."""
        return await self._spread(notes, [note.lease.id for note in notes], verbs.note, verbs.SETTLE_MAX)

    async def enlist(self, card: Card) -> bool:
        """A worker's sign of life. True when it has been asked to finish and go."""
        call = verbs.enlist(self.operations.bases[0], card)
        try:
            return await self.run(call) == "drain"
        except NoNamespace:  # the data was flushed
            return await self._anew(call) == "drain"

    async def workers(self) -> list[WorkerInfo]:
        """The workers on the register; what they hold is left out."""
        return await self.follow(roster.workers(self.operations.bases, jobs=False))

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """Strike off workers (name → life) that are gone for good and end their leases. How many those were."""
        return await self.follow(roster.reconcile(self.operations.bases, gone))

    async def retire(self, card: Card) -> bool:
        """May an idle worker of a pool go? True: it counts no more from this moment, and must take nothing more."""
        from sublet.operations.pools import may_leave  # who has no pool has no need of it

        return await self.follow(may_leave(self.operations.bases, card.pool, card.worker))

    async def leave(self, card: Card) -> None:
        """Strike off a worker that holds nothing any more."""
        await self.run(verbs.reconcile(self.operations.bases[0], card.worker, card.life, []))

    async def _spread(
        self, items: Sequence[Any], ids: Sequence[str], verb: Any, most: int = verbs.BATCH
    ) -> list[Any]:
        """Send items to their partitions, in calls that are not too large, side by side; the answers come in the items' order."""
        by_base: dict[str, list[int]] = {}
        for i, job_id in enumerate(ids):
            by_base.setdefault(self.operations.base_of_job(job_id), []).append(i)
        chunks = [
            (base, c)
            for base, own in by_base.items()
            for c in verbs.batches(own, lambda i: verbs.weight(items[i]), most)
        ]
        replies = await asyncio.gather(*(self.run(verb(b, [items[i] for i in chunk])) for b, chunk in chunks))
        answers: list[Any] = [None] * len(items)
        for (_, chunk), reply in zip(chunks, replies, strict=True):
            for i, answer in zip(chunk, reply, strict=True):
                answers[i] = answer
        return answers

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Where a job stands, as soon as it has ended or `wait` seconds are over."""
        endings = self._endings = self._endings or Endings(
            self.settings, self.run, self._blocking, self._routes
        )
        return await endings.watch(
            self.operations.base_of_job(job_id), job_id, 0 if self.hurried.is_set() else wait
        )

    def hurry(self) -> None:
        """Have nobody wait any more: claims, watches and listeners that do are answered now, and later ones at once."""
        self.hurried.set()
        self._claims.hurry()
        if self._endings:
            self._endings.hurry()
        if self._tail:
            self._tail.close()

    async def rest(self) -> None:
        """See to what claims have left undone, and listen no more, until somebody waits again: this process may be frozen.

        The marker that a frozen process hears would be lost, and another worker would find its job only at its next look.
        """
        await self._claims.aclose()

    @property
    def has_listeners(self) -> bool:
        """Does anybody listen to the moves of jobs?"""
        return self._tail is not None and len(self._tail.listeners) > 0

    def tail(self) -> Tail:
        """Who hears of every move of every job: one for all listeners of this process."""
        if self._tail is None:
            self._tail = Tail(self.settings, self.run, self._blocking, self._routes)
        return self._tail

    async def aclose(self) -> None:
        """Give back what abandoned claims brought, and let go of all connections."""
        await self._claims.aclose()
        if self._preparing:
            await asyncio.wait([self._preparing])
        if self._endings:
            await self._endings.aclose()
        if self._tail:
            await self._tail.aclose()
        await self._transport.aclose()
