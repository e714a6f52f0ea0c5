"""`Client` and `SyncClient`: each method runs one plan of `Operations`."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sublet.client.handle import Handle, SyncHandle
from sublet.connection.routing import sync_transport_for
from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport
from sublet.errors import JobCancelled, JobFailed, NotFound
from sublet.model import (
    FINISHED,
    Job,
    Page,
    Queue,
    Reaped,
    Standing,
    State,
    Stats,
    Submission,
    Submitted,
    WorkerInfo,
)
from sublet.operations.operations import Operations
from sublet.options import Options
from sublet.protocol.payload import payload_of
from sublet.protocol.plan import Plan, follow_sync
from sublet.protocol.reads import attempt_from
from sublet.store.results import watch_sync
from sublet.store.store import Store

if TYPE_CHECKING:
    from sublet.client.schedules import Schedules, SyncSchedules
    from sublet.scaling.summoner import Summoner
    from sublet.scaling.sync_summoner import SyncSummoner
    from sublet.schedules.decorators import DeclaresSchedules
    from sublet.schedules.operations import Synced

T = TypeVar("T")

DEFAULT = Options()


def _loads(result: bytes) -> Any:
    return json.loads(result or b"null")


def result_of(job_id: str, standing: Standing, decode: Callable[[bytes], T], waited: float) -> T:
    """Return a job's result. Raises JobFailed, JobCancelled, NotFound or TimeoutError."""
    if standing.state is State.COMPLETED:
        return decode(standing.result)
    if standing.state is None:
        raise NotFound(f"no job {job_id}: it never existed, or its retention has passed")
    if standing.state not in FINISHED:
        raise TimeoutError(
            f"job {job_id} is still {standing.state} after {waited:g} s; it goes on: wait again"
        )
    last = attempt_from(0, standing.story) if standing.story else None
    message, detail = (last.message, last.detail) if last else ("", "")
    if standing.state is State.CANCELLED:
        raise JobCancelled(job_id, message, detail)
    raise JobFailed(job_id, last.code if last else "dead", message, detail)


def _summoner(store: Store) -> "Summoner":
    from sublet.scaling.invokers import invokers_of  # most clients summon no workers
    from sublet.scaling.summoner import Summoner

    summoner = Summoner(store, invokers_of())
    store.nudge = summoner.nudge
    return summoner


def _sync_summoner(settings: Settings) -> "SyncSummoner":
    from sublet.scaling.sync_summoner import SyncSummoner

    return SyncSummoner(settings)


class Client:
    """The client for an event loop. Connects on first use; `async with` closes it."""

    def __init__(
        self,
        settings: Settings | None = None,
        store: Store | None = None,
        operations: Operations | None = None,
    ) -> None:
        self.store = store or Store(settings or Settings.read(), operations=operations)
        self._summoner = _summoner(self.store) if self.store.settings.summon else None

    async def submit(
        self, task: str, payload: Any = None, options: Options = DEFAULT, *, job_id: str | None = None
    ) -> Handle[Any]:
        """Submit by task name; safe to repeat with one `job_id`. Raises Invalid, Refused, Unavailable."""
        job = self.store.operations.submission(
            task, payload_of(payload or {}), options.queue, options.rules(), job_id, options.durability
        )
        (submitted,) = await self.store.submit([job])
        created = submitted.created or (job_id is None and submitted.id == job.id)
        return Handle(submitted.id, created, self, _loads)

    async def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit jobs made by `Task.job(…)`, in few calls."""
        return await self.store.submit(jobs)

    async def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = _loads) -> T:
        """Wait for a result. Raises JobFailed, JobCancelled, NotFound; after `timeout` seconds, TimeoutError."""
        return result_of(job_id, await self.store.watch(job_id, timeout), decode, timeout)

    async def get(self, job_id: str) -> Job:
        """Return a job with its attempts. Raises NotFound."""
        return await self.store.follow(self.store.operations.get(job_id))

    async def list_jobs(self, **filters: Any) -> Page:
        """Return at most `limit` jobs from `cursor` on, by `state`, `queue` and `task`."""
        return await self.store.follow(self.store.operations.list_jobs(**filters))

    async def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Cancel a job. Return `cancelled`, or `requested` if it runs. Raises WrongState."""
        return await self.store.follow(self.store.operations.cancel(job_id, revision))

    async def retry(self, job_id: str, revision: int | None = None) -> str:
        """Queue a dead or cancelled job again, with all tries."""
        return await self.store.follow(self.store.operations.retry(job_id, revision))

    async def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now."""
        return await self.store.follow(self.store.operations.promote(job_id, revision))

    async def pause(self, queue: str) -> str:
        """Stop claims from a queue. Submits and running jobs go on."""
        return await self.store.follow(self.store.operations.pause(queue))

    async def resume(self, queue: str) -> str:
        """Allow claims from a queue again."""
        return await self.store.follow(self.store.operations.resume(queue))

    async def configure(self, queue: str, **limits: int | None) -> str:
        """Set or remove (None) limits: `jobs`, `bytes` of a queue; `completed`, `dead`, `cancelled` of `*`."""
        return await self.store.follow(self.store.operations.configure(queue, **limits))

    async def queue(self, name: str) -> Queue:
        """Return a queue with its limits; `*` for the namespace."""
        return await self.store.follow(self.store.operations.queue(name))

    async def queues(self) -> list[Queue]:
        """Return all queues that ever had a job or setting."""
        return await self.store.follow(self.store.operations.queues())

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers, the latest heartbeat first."""
        return await self.store.follow(self.store.operations.workers())

    async def drain(self, worker: str) -> str:
        """Ask a worker to finish its jobs and exit. Raises NotFound."""
        return await self.store.follow(self.store.operations.drain(worker))

    @property
    def schedules(self) -> "Schedules":
        """The namespace's schedules."""
        from sublet.client.schedules import Schedules  # the calendar is slow to load

        return Schedules(self.store)

    async def sync(
        self, app: "DeclaresSchedules", source: str = "app", *, remove: bool = False
    ) -> "Sequence[Synced]":
        """Store an app's schedules (see `Schedules.sync`)."""
        return await self.schedules.sync(app.schedules.all(), source, remove=remove)

    async def stats(self) -> list[Stats]:
        """Return each partition's statistics."""
        return await self.store.follow(self.store.operations.stats())

    async def aclose(self) -> None:
        """Close all connections."""
        if self._summoner:
            await self._summoner.aclose()
        await self.store.aclose()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SyncClient:
    """The client without an event loop. Connects on first use; `with` closes it. Threads may share it."""

    def __init__(
        self,
        settings: Settings | None = None,
        transport: SyncTransport | None = None,
        operations: Operations | None = None,
    ) -> None:
        self.transport = transport or sync_transport_for(settings or Settings.read())
        self.operations = operations or Operations(self.transport.settings)
        self._summoner = _sync_summoner(self.transport.settings) if self.transport.settings.summon else None
        self._ready = False

    def follow(self, plan: Plan[T]) -> T:
        """Run a plan, creating the namespace if needed."""
        self._prepare()
        return follow_sync(self.transport.run, plan)

    def _prepare(self) -> None:
        if not self._ready:
            follow_sync(self.transport.run, self.operations.prepare())
            self._ready = True

    def follow_existing(self, plan: Plan[T]) -> T:
        """Run a plan that stores no job, without creating the namespace."""
        return follow_sync(self.transport.run, plan)

    def submit(
        self, task: str, payload: Any = None, options: Options = DEFAULT, *, job_id: str | None = None
    ) -> SyncHandle[Any]:
        """Submit by task name; safe to repeat with one `job_id`. Raises Invalid, Refused, Unavailable."""
        job = self.operations.submission(
            task, payload_of(payload or {}), options.queue, options.rules(), job_id, options.durability
        )
        (submitted,) = self.submit_all([job])
        created = submitted.created or (job_id is None and submitted.id == job.id)
        return SyncHandle(submitted.id, created, self, _loads)

    def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit jobs made by `Task.job(…)`, in few calls."""
        stored = self.follow(self.operations.submit(jobs))
        if self._summoner:
            self._summoner.nudge([job.queue for job in jobs])
        return stored

    def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = _loads) -> T:
        """Wait for a result. Raises JobFailed, JobCancelled, NotFound; after `timeout` seconds, TimeoutError."""
        self._prepare()  # with another partition count, the job would not be found
        return result_of(
            job_id,
            watch_sync(self.transport, self.operations.base_of_job(job_id), job_id, timeout),
            decode,
            timeout,
        )

    def get(self, job_id: str) -> Job:
        """Return a job with its attempts. Raises NotFound."""
        return self.follow(self.operations.get(job_id))

    def list_jobs(self, **filters: Any) -> Page:
        """Return at most `limit` jobs from `cursor` on, by `state`, `queue` and `task`."""
        return self.follow(self.operations.list_jobs(**filters))

    def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Cancel a job. Return `cancelled`, or `requested` if it runs. Raises WrongState."""
        return self.follow(self.operations.cancel(job_id, revision))

    def retry(self, job_id: str, revision: int | None = None) -> str:
        """Queue a dead or cancelled job again, with all tries."""
        return self.follow(self.operations.retry(job_id, revision))

    def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now."""
        return self.follow(self.operations.promote(job_id, revision))

    def pause(self, queue: str) -> str:
        """Stop claims from a queue. Submits and running jobs go on."""
        return self.follow(self.operations.pause(queue))

    def resume(self, queue: str) -> str:
        """Allow claims from a queue again."""
        return self.follow(self.operations.resume(queue))

    def configure(self, queue: str, **limits: int | None) -> str:
        """Set or remove (None) limits: `jobs`, `bytes` of a queue; `completed`, `dead`, `cancelled` of `*`."""
        return self.follow(self.operations.configure(queue, **limits))

    def queue(self, name: str) -> Queue:
        """Return a queue with its limits; `*` for the namespace."""
        return self.follow(self.operations.queue(name))

    def queues(self) -> list[Queue]:
        """Return all queues that ever had a job or setting."""
        return self.follow(self.operations.queues())

    def workers(self) -> list[WorkerInfo]:
        """Return the workers, the latest heartbeat first."""
        return self.follow(self.operations.workers())

    def drain(self, worker: str) -> str:
        """Ask a worker to finish its jobs and exit. Raises NotFound."""
        return self.follow(self.operations.drain(worker))

    @property
    def schedules(self) -> "SyncSchedules":
        """The namespace's schedules."""
        from sublet.client.schedules import SyncSchedules  # the calendar is slow to load

        return SyncSchedules(self)

    def sync(
        self, app: "DeclaresSchedules", source: str = "app", *, remove: bool = False
    ) -> "Sequence[Synced]":
        """Store an app's schedules (see `SyncSchedules.sync`)."""
        return self.schedules.sync(app.schedules.all(), source, remove=remove)

    def stats(self) -> list[Stats]:
        """Return each partition's statistics."""
        return self.follow(self.operations.stats())

    def reap(self, by: str) -> Reaped:
        """End expired leases, and queue due jobs."""
        return self.follow(self.operations.reap(by))

    def prune(self) -> tuple[int, bool]:
        """Delete jobs past their retention. Return how many, and whether more may remain."""
        return self.follow(self.operations.prune())

    def close(self) -> None:
        """Summon the remaining workers, and close all connections."""
        if self._summoner:
            self._summoner.close()
        self.transport.close()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
