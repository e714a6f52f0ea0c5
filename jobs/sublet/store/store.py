"""`Store`: reach jobs in Redis, on an event loop."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sublet.connection.routing import RoutingTransport, transport_for
from sublet.connection.settings import Settings
from sublet.connection.transport import follow
from sublet.errors import JobsError, NoNamespace, Unavailable
from sublet.large_payloads.storage import Storage, storage_of
from sublet.large_payloads.submits import submit_large
from sublet.model import (
    Beat,
    Card,
    Claimed,
    Completion,
    Description,
    Ending,
    Failure,
    Following,
    Lease,
    Note,
    Release,
    Standing,
    Submission,
    Submitted,
    Suspension,
    WorkerInfo,
)
from sublet.operations import workers as roster
from sublet.operations.operations import Operations
from sublet.protocol import verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.steps import calls as step_calls
from sublet.steps import chunks
from sublet.steps.calls import CalledJob, Kept
from sublet.steps.chunks import Emission, StreamPage
from sublet.store import results
from sublet.store.claim import ClaimRequest, Claims
from sublet.store.events import EventStream
from sublet.store.results import ResultWatcher
from sublet.store.sampler import Sampler
from sublet.store.source import PoolSummoner
from sublet.store.waiting.streams import Streams
from sublet.submission.durability import raise_with_ids
from sublet.tasks import catalogue
from sublet.workflows.following import complete, settle_each
from sublet.workflows.upstream import UpstreamPage, page

if TYPE_CHECKING:
    from sublet.operations.orders.bulk import OrderPage, Selection

T = TypeVar("T")


class Store:
    """Reaches a namespace's jobs in Redis. For one event loop; connects at its first call.

    `client` and `blocking` (for blocking reads): redis-py clients to use instead of new ones; `aclose` closes both.
    """

    def __init__(
        self,
        settings: Settings,
        client: Any = None,
        blocking: Any = None,
        operations: Operations | None = None,
    ) -> None:
        self.settings, self._storage = settings, settings.storage
        self.operations = operations or Operations(settings)
        self._transport = transport_for(settings, client)
        self._routes = self._transport if isinstance(self._transport, RoutingTransport) else None
        self._blocking = blocking
        self._results: ResultWatcher | None = None
        self._event_stream: EventStream | None = None
        self._ready = False
        self._preparing: asyncio.Future[None] | None = None
        self.hurried = asyncio.Event()
        self._claims = Claims(
            settings, self.operations, self.run, self._recreate, self.prepare, self.settle, self.hurried, blocking, self._routes
        )  # fmt: skip
        self.streams = Streams(settings, self.run, blocking, self._routes)
        self._sampler = Sampler(self.follow, self.operations)
        self.nudge: Callable[[Sequence[str]], None] = lambda queues: None
        """Called with the queues of each submit, to start workers. By default it does nothing."""
        self.summoner: PoolSummoner | None = None
        """Starts the workers that pools are owed, in a server of the HTTP API; else None."""

    async def prepare(self) -> None:
        """Once per store, create a missing namespace. Raises Unfit for another partition count, or a server
        that may evict jobs (unless allowed)."""
        if self._ready:
            return
        if self._preparing is None:
            self._preparing = asyncio.ensure_future(follow(self._transport.run, self.operations.prepare()))
            self._preparing.add_done_callback(self._prepared)
        await asyncio.shield(self._preparing)

    def _prepared(self, preparing: "asyncio.Future[None]") -> None:
        self._preparing = None
        self._ready = not preparing.cancelled() and preparing.exception() is None

    async def run(self, call: Call[T]) -> T:
        """Send one call; return its parsed reply. The store's first call creates a missing namespace."""
        if not self._ready:
            await self.prepare()
        return await self._transport.run(call)

    async def _recreate(self, call: Call[T]) -> T:
        self._ready = False
        return await self.run(call)

    async def follow(self, plan: Plan[T]) -> T:
        """Run a plan; return its result. The store's first call creates a missing namespace."""
        if not self._ready:
            await self.prepare()
        return await follow(self._transport.run, plan)

    async def follow_existing(self, plan: Plan[T]) -> T:
        """Run a plan; return its result. In a missing namespace reads find nothing, scripts raise NoNamespace."""
        return await follow(self._transport.run, plan)

    async def bases_by_server(self) -> list[str]:
        """Return one partition's key prefix for each server. Raises Unavailable."""
        if not self._routes:
            return self.operations.bases[:1]
        found: dict[str, str] = {}
        for base in self.operations.bases:
            found.setdefault((await self._routes.find(base))[1], base)
        return list(found.values())

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store jobs; return the answers in order. Safe to repeat. Raises Invalid, Refused, Unavailable:
        some may be stored."""
        if self._storage is not None:
            return await self._submit_large(self._storage, jobs, self.operations.submit)
        stored = await self.follow(self.operations.submit(jobs))
        self.nudge([job.queue for job in jobs])
        return stored

    async def submit_one(self, job: Submission) -> Submitted:
        """Store one job. Safe to repeat. Raises Invalid, Refused, Unavailable."""
        try:
            answer = await self._straight(job)
        except Unavailable as error:
            raise_with_ids(error, [job])
        if answer is None:
            return (await self.submit([job]))[0]
        if isinstance(answer, JobsError):
            raise answer
        self.nudge([job.queue])
        return answer

    async def _straight(self, job: Submission) -> Submitted | JobsError | None:
        straight = self.operations.straight(job) if self._ready and self._storage is None else None
        if straight is None:
            return None
        call, size = straight
        try:
            return self.operations.answer(job, await self._transport.run(call))
        except NoNamespace:  # the general way creates it
            return None
        finally:
            self.operations.end(size)

    async def fetch(self, job_id: str, reference: bytes) -> bytes:
        """Read a job's large result, of which Redis has a `reference`. Raises PayloadLost, Unavailable, Invalid."""
        return await asyncio.to_thread(storage_of(self.settings, job_id).get, job_id, reference)

    async def erase(self, job_id: str, revision: int | None = None) -> str:
        """Delete a finished job, its large payload and result; return `erased`. Raises WrongState, NotFound or Changed."""
        erased = await self.follow_existing(self.operations.erase(job_id, revision))
        if erased.references:
            await asyncio.to_thread(storage_of(self.settings, job_id).erase, dict([erased]))
        return "erased"

    async def order_page(self, order: str, wanted: "Selection", **how: Any) -> "OrderPage":
        """Carry out an order on a page of jobs, as `Operations.order_page`. `erase` also deletes large payloads and results."""
        page = await self.follow_existing(self.operations.order_page(order, wanted, **how))
        if page.references:
            await asyncio.to_thread(storage_of(self.settings, "").erase, page.references)
        return page

    async def _submit_large(
        self,
        storage: Storage,
        jobs: Sequence[Submission],
        submit: Callable[[Sequence[Submission]], Plan[list[T]]],
    ) -> list[T]:
        answers = await submit_large(storage, jobs, lambda some: self.follow(submit(some)))
        self.nudge([job.queue for job in jobs])
        return answers

    async def submit_each(self, jobs: Sequence[Submission]) -> list[Submitted | JobsError]:
        """Store each job, even if others are refused; return per job `Submitted` or its error. Raises
        Unavailable; Invalid for an invalid durability."""
        if len(jobs) == 1 and (answer := await self._straight(jobs[0])) is not None:
            self.nudge([jobs[0].queue])
            return [answer]
        if self._storage is not None:
            return await self._submit_large(self._storage, jobs, self.operations.submit_each)
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
        strict: bool = False,
        life: str = "",
        claim_id: str | None = None,
        ahead: bool = False,
    ) -> Claimed:
        """Lease up to `n` jobs; wait up to `wait` seconds for the first, as `JobSource.claim`.

        A second claim with the same `claim_id` within 10 s returns the first one's jobs that are still
        leased. A cancelled call releases its jobs. `ahead`: the claim may be sent before there is a job."""
        request = ClaimRequest(worker, queues, n, lease, claim_id, strict, life, ahead=ahead and not claim_id)
        return await self._claims.claim(request, wait)

    async def give_back(self, leases: Sequence[Lease], reason: str) -> None:
        """Release claimed jobs that no worker will run, even if the caller is cancelled. Raises Unavailable."""
        await self._claims.give_back(leases, reason)

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases; return per lease its new end (ms since 1970) or a code, as `JobSource.heartbeat`."""
        ids = [beat.lease.id for beat in beats]
        return await self._spread(beats, ids, lambda base, some: verbs.heartbeat(base, some, lease=lease))

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """Report outcomes; return per attempt the job's new state or a code, as `JobSource.settle`."""

        def by(verb: Any, most: int) -> Callable[[Sequence[Ending]], Awaitable[list[str]]]:
            return lambda some: self._spread(some, [ending.lease.id for ending in some], verb, most)

        senders = {
            Completion: by(verbs.complete, verbs.COMPLETE_MAX),
            Failure: by(verbs.fail, verbs.FAIL_MAX),
            Release: by(verbs.release, verbs.SETTLE_MAX),
            Suspension: by(step_calls.suspend, verbs.SETTLE_MAX),
        }
        return await settle_each(endings, senders, self._proceed)

    async def _proceed(self, ending: Completion, following: Following) -> str:
        answer = await self.follow_existing(complete(self.operations, ending, following))
        self.nudge([job.queue for job in (*following.jobs, following.callback) if job])
        return answer

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Store checkpoints, logs and costs; return per lease `noted` or a code, as `JobSource.note`."""
        words = await self._spread(notes, [note.lease.id for note in notes], verbs.note, verbs.SETTLE_MAX)
        spent = [(note.lease, int(note.cost)) for note in notes if note.cost]
        if spent:
            from sublet.protocol.flow import spend

            await self._spread(spent, [lease.id for lease, _ in spent], spend, verbs.SETTLE_MAX)
        return words

    async def step(self, lease: Lease, steps: Mapping[str, bytes]) -> dict[str, Kept]:
        """Keep steps; return those kept before; if `steps` is empty, all kept ones."""
        return await self.run(step_calls.step(self.operations.base_of_job(lease.id), lease, steps))

    async def emit(self, lease: Lease, emission: Emission) -> None:
        """Append chunks, as `JobSource.emit`."""
        await self.run(chunks.emit(self.operations.base_of_job(lease.id), lease, emission))

    async def call(self, lease: Lease, called: CalledJob) -> Kept:
        """Store a job for a step, once; return the step, as `JobSource.call`."""
        from sublet.workflows.calling import call

        step = await self.follow_existing(call(self.operations, lease, called))
        self.nudge([called.job.queue])
        return step

    async def upstream(self, lease: Lease, start: int) -> UpstreamPage:
        """Return outcomes of upstream jobs, from index `start` on."""
        return await self.follow_existing(page(self.operations.base_of_job(lease.id), lease, start))

    async def enlist(self, card: Card) -> bool:
        """Register a worker, or renew its registration; return whether it should drain."""
        call = verbs.enlist(self.operations.bases[0], card)
        try:
            answer = await self.run(call)
        except NoNamespace:
            answer = await self._recreate(call)
        self._sampler.start()
        return answer == "drain"

    async def publish(self, tasks: Sequence[Description], starting: bool) -> None:
        """Write or renew a worker's tasks in the catalogue; replace recent different ones only if `starting`."""
        await self.follow(catalogue.publish(self.operations.bases[0], tasks, starting=starting))

    async def workers(self) -> list[WorkerInfo]:
        """Return the registered workers without their leases."""
        return await self.follow(roster.everyone(self.operations.bases))

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """End the leases of gone workers (name → life), as `JobSource.reconcile`; return how many leases."""
        return await self.follow(roster.reconcile(self.operations.bases, gone))

    async def retire(self, card: Card) -> bool:
        """Return whether an idle worker may leave its pool, which then stops counting it."""
        from sublet.operations.pools import may_leave

        return await self.follow(may_leave(self.operations.bases, card.pool, card.worker))

    async def leave(self, card: Card) -> None:
        """Delete a worker's registration, unless its life is another."""
        await self.run(verbs.reconcile(self.operations.bases[0], card.worker, card.life, []))

    async def _spread(
        self, items: Sequence[Any], ids: Sequence[str], verb: Any, most: int = verbs.BATCH
    ) -> list[Any]:
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
        """Wait up to `wait` seconds for a job's end; then return its standing. State None: no such job."""
        base, wait = self.operations.base_of_job(job_id), 0 if self.hurried.is_set() else wait
        return await self._watcher().watch(base, job_id, wait)

    async def standings(self, job_ids: Sequence[str]) -> list[Standing]:
        """Return each job's standing, in order. Raises Invalid for a malformed id."""
        return await self._spread(job_ids, job_ids, verbs.watch, results.BATCH)

    async def watch_many(self, job_ids: Sequence[str], wait: float) -> AsyncIterator[dict[str, Standing]]:
        """Wait up to `wait` seconds for jobs; yield batches (id → standing) of those ended or non-existent."""
        jobs = {job_id: self.operations.base_of_job(job_id) for job_id in job_ids}
        async for ended in self._watcher().watch_many(jobs, 0 if self.hurried.is_set() else wait):
            yield ended

    def _watcher(self) -> ResultWatcher:
        self._results = self._results or ResultWatcher(self.settings, self.run, self._blocking, self._routes)
        return self._results

    def hurry(self) -> None:
        """End all waits now: of claims, and for results, events and chunks. Later calls do not wait."""
        self.hurried.set()
        self._claims.hurry()
        if self._results:
            self._results.hurry()
        if self._event_stream:
            self._event_stream.close()
        self.streams.close()

    async def rest(self) -> None:
        """Before a platform freezes the process: end background work, and close the connection of waiting
        claims.
        """
        await self._sampler.aclose()
        await self._claims.aclose()

    @property
    def has_subscribers(self) -> bool:
        """Whether the event stream has a subscriber in this process."""
        return self._event_stream is not None and len(self._event_stream.subscribers) > 0

    def event_stream(self) -> EventStream:
        """Return the event stream that all subscribers share."""
        if self._event_stream is None:
            self._event_stream = EventStream(self.settings, self.run, self._blocking, self._routes)
            if self.hurried.is_set():
                self._event_stream.close()
        return self._event_stream

    def stream(self, job_id: str, *position: Any) -> AsyncGenerator[StreamPage, None]:
        """Yield the pages of a job's stream; `position`: `after`, `seconds` and `count` of `Streams.follow`."""
        return self.streams.follow(self.operations.base_of_job(job_id), job_id, *position)

    async def aclose(self) -> None:
        """End background work and close all connections."""
        await self._sampler.aclose()
        await self._claims.aclose()
        if self._preparing:
            await asyncio.wait([self._preparing])
        if self._results:
            await self._results.aclose()
        if self._event_stream:
            await self._event_stream.aclose()
        await self.streams.aclose()
        await self._transport.aclose()
