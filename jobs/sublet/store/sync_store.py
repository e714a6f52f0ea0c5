"""`SyncStore`: submit jobs and operate a namespace in Redis, without an event loop."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sublet.connection.routing import sync_transport_for
from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport, follow_sync
from sublet.errors import JobsError, NoNamespace, Unavailable
from sublet.large_payloads.storage import storage_of
from sublet.model import Standing, Submission, Submitted
from sublet.operations.operations import Operations
from sublet.protocol.plan import Plan
from sublet.steps.chunks import StreamPage
from sublet.store.results import read_many, watch_many_sync, watch_sync
from sublet.store.waiting.streams import follow_stream_sync
from sublet.submission.durability import raise_with_ids

if TYPE_CHECKING:
    from sublet.operations.orders.bulk import OrderPage, Selection

T = TypeVar("T")


class SyncStore:
    """Submits jobs, waits for results and runs plans.

    Threads may share it. It connects at its first call. `transport`: to use instead of a new one; `close`
    closes it.
    """

    def __init__(
        self,
        settings: Settings,
        transport: SyncTransport | None = None,
        operations: Operations | None = None,
    ) -> None:
        self.settings, self._storage = settings, settings.storage
        self.operations = operations or Operations(settings)
        self.transport = transport or sync_transport_for(settings)
        self._ready = False
        self.nudge: Callable[[Sequence[str]], None] = lambda queues: None
        """Called with the queues of each submit. By default it does nothing."""

    def prepare(self) -> None:
        """Once per store, create a missing namespace. Raises Unfit for another partition count, or a server
        that may evict jobs (unless allowed).
        """
        if not self._ready:
            follow_sync(self.transport.run, self.operations.prepare())
            self._ready = True

    def follow(self, plan: Plan[T]) -> T:
        """Run a plan; return its result. The store's first call creates a missing namespace."""
        if not self._ready:
            self.prepare()
        return follow_sync(self.transport.run, plan)

    def follow_existing(self, plan: Plan[T]) -> T:
        """Run a plan; return its result. Do not create a missing namespace."""
        return follow_sync(self.transport.run, plan)

    def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store jobs; return the answers in order. Safe to repeat. Raises Invalid, Refused, Unavailable:
        some may be stored.
        """
        storage = self._storage
        sent = jobs if storage is None else storage.put_payloads(jobs)
        stored = self.follow(self.operations.submit(sent))
        if storage is not None:
            tries = 0
            while again := storage.put_for_holders(jobs, stored, tries):
                tries += 1
                answers = self.follow(self.operations.submit([*again.values()]))
                for place, answer in zip(again, answers, strict=True):
                    stored[place] = answer
            storage.delete_unused(sent, stored)
        self.nudge([job.queue for job in jobs])
        return stored

    def submit_one(self, job: Submission) -> Submitted:
        """Store one job. Safe to repeat. Raises Invalid, Refused or Unavailable."""
        try:
            answer = self._straight(job)
        except Unavailable as error:
            raise_with_ids(error, [job])
        if answer is None:
            return self.submit([job])[0]
        if isinstance(answer, JobsError):
            raise answer
        self.nudge([job.queue])
        return answer

    def _straight(self, job: Submission) -> Submitted | JobsError | None:
        straight = self.operations.straight(job) if self._ready and self._storage is None else None
        if straight is None:
            return None
        call, size = straight
        try:
            return self.operations.answer(job, self.transport.run(call))
        except NoNamespace:  # the general way creates it
            return None
        finally:
            self.operations.end(size)

    def fetch(self, job_id: str, reference: bytes) -> bytes:
        """Read a job's large result, of which Redis has a `reference`. Raises PayloadLost, Unavailable,
        Invalid.
        """
        return storage_of(self.settings, job_id).get(job_id, reference)

    def erase(self, job_id: str, revision: int | None = None) -> str:
        """Delete a finished job, its large payload and result; return `erased`. Raises WrongState, NotFound,
        Changed.
        """
        erased = self.follow_existing(self.operations.erase(job_id, revision))
        if erased.references:
            storage_of(self.settings, job_id).erase(dict([erased]))
        return "erased"

    def order_page(self, order: str, wanted: "Selection", **how: Any) -> "OrderPage":
        """Carry out an order on a page of jobs, as `Operations.order_page`. `erase` also deletes large
        payloads and results.
        """
        page = self.follow_existing(self.operations.order_page(order, wanted, **how))
        if page.references:
            storage_of(self.settings, "").erase(page.references)
        return page

    def watch(self, job_id: str, wait: float) -> Standing:
        """Wait up to `wait` seconds for a job's end; then return its standing. State None: no such job."""
        self.prepare()  # checks the partition count
        return watch_sync(self.transport, self.operations.base_of_job(job_id), job_id, wait)

    def standings(self, job_ids: Sequence[str]) -> list[Standing]:
        """Return each job's standing, in order. Raises Invalid for a malformed id."""
        jobs = {job_id: self.operations.base_of_job(job_id) for job_id in job_ids}
        self.prepare()
        found = dict(read_many(self.transport, jobs, [*jobs]))
        return [found[job_id] for job_id in job_ids]

    def watch_many(self, job_ids: Sequence[str], wait: float) -> Iterator[dict[str, Standing]]:
        """Wait up to `wait` seconds for jobs; yield batches (id → standing) of those that have ended or do
        not exist.
        """
        jobs = {job_id: self.operations.base_of_job(job_id) for job_id in job_ids}
        self.prepare()
        if jobs:
            yield from watch_many_sync(self.transport, jobs, wait)

    def stream(self, job_id: str, after: int, seconds: float) -> Generator[StreamPage, None, None]:
        """Yield the pages of a job's stream, also empty ones, as `Streams.follow`."""
        self.prepare()
        return follow_stream_sync(self.transport, self.operations.base_of_job(job_id), job_id, after, seconds)

    def close(self) -> None:
        """Close all connections."""
        self.transport.close()
