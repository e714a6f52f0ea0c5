"""What producers and operators hold: submit, look, wait, cancel, retry. Async and sync over the same plans."""

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
from sublet.protocol.plan import Plan
from sublet.protocol.reads import attempt_from
from sublet.store.results import watch_sync
from sublet.store.store import Store

if TYPE_CHECKING:
    from sublet.app import App
    from sublet.client.schedules import Schedules, SyncSchedules
    from sublet.scaling.summoner import Summoner
    from sublet.scaling.sync_summoner import SyncSummoner
    from sublet.schedules.operations import Synced

T = TypeVar("T")

DEFAULT = Options()


def _loads(result: bytes) -> Any:
    return json.loads(result or b"null")


def outcome(job_id: str, standing: Standing, decode: Callable[[bytes], T], waited: float) -> T:
    """The result of a job that stands thus. Raises JobFailed, JobCancelled, NotFound, or TimeoutError when it has not ended."""
    if standing.state is State.COMPLETED:
        return decode(standing.result)
    if standing.state is None:
        raise NotFound(f"no job {job_id}: it never was, or its retention has passed")
    if standing.state not in FINISHED:
        raise TimeoutError(
            f"job {job_id} is still {standing.state} after {waited:g} s; it goes on, wait again when you like"
        )
    last = attempt_from(0, standing.story) if standing.story else None
    message, detail = (last.message, last.detail) if last else ("", "")
    if standing.state is State.CANCELLED:
        raise JobCancelled(job_id, message, detail)
    raise JobFailed(job_id, last.code if last else "dead", message, detail)


def _summoner(store: Store) -> "Summoner":
    from sublet.scaling.invokers import invokers_of  # who summons nobody has no need of it
    from sublet.scaling.summoner import Summoner

    summoner = Summoner(store, invokers_of())
    store.nudge = summoner.nudge
    return summoner


def _sync_summoner(settings: Settings) -> "SyncSummoner":
    from sublet.scaling.sync_summoner import SyncSummoner

    return SyncSummoner(settings)


class Client:
    """Submits, looks at and steers jobs from an event loop. Connects on first use; `async with` closes it."""

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
        """Submit one job by its task's name. Raises Invalid, Refused or Unavailable; sending the same `job_id` again is safe."""
        job = self.store.operations.submission(
            task, payload_of(payload or {}), options.queue, options.rules(), job_id, options.durability
        )
        (submitted,) = await self.store.submit([job])
        created = submitted.created or (job_id is None and submitted.id == job.id)
        return Handle(submitted.id, created, self, _loads)

    async def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit many jobs in few calls; `Task.job(…)` makes them."""
        return await self.store.submit(jobs)

    async def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = _loads) -> T:
        """Wait for a job's result. Raises JobFailed, JobCancelled, NotFound, or TimeoutError after `timeout` seconds."""
        return outcome(job_id, await self.store.watch(job_id, timeout), decode, timeout)

    async def get(self, job_id: str) -> Job:
        """One job with its story. Raises NotFound."""
        return await self.store.follow(self.store.operations.get(job_id))

    async def list_jobs(self, **filters: Any) -> Page:
        """Jobs by `state`, `queue` and `task`, `limit` a page, from `cursor` on."""
        return await self.store.follow(self.store.operations.list_jobs(**filters))

    async def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Call a job off: `cancelled`, or `requested` when it runs. Raises WrongState when it has ended."""
        return await self.store.follow(self.store.operations.cancel(job_id, revision))

    async def retry(self, job_id: str, revision: int | None = None) -> str:
        """Revive a dead or cancelled job with all its tries."""
        return await self.store.follow(self.store.operations.retry(job_id, revision))

    async def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now."""
        return await self.store.follow(self.store.operations.promote(job_id, revision))

    async def pause(self, queue: str) -> str:
        """Hand out no more jobs of a queue; those that run go on, and new ones are taken in."""
        return await self.store.follow(self.store.operations.pause(queue))

    async def resume(self, queue: str) -> str:
        """Hand out the jobs of a paused queue again."""
        return await self.store.follow(self.store.operations.resume(queue))

    async def configure(self, queue: str, **limits: int | None) -> str:
        """Set limits: `jobs`, `bytes` of a queue, `completed`, `dead`, `cancelled` (jobs kept) of `*`; None lifts one."""
        return await self.store.follow(self.store.operations.configure(queue, **limits))

    async def queue(self, name: str) -> Queue:
        """One queue, known or not, with its limits; `*` has those of the whole namespace."""
        return await self.store.follow(self.store.operations.queue(name))

    async def queues(self) -> list[Queue]:
        """All queues that ever had a job or a setting."""
        return await self.store.follow(self.store.operations.queues())

    async def workers(self) -> list[WorkerInfo]:
        """All workers on the register, with what they hold; the latest heard of first."""
        return await self.store.follow(self.store.operations.workers())

    async def drain(self, worker: str) -> str:
        """Ask a worker to finish and go. Raises NotFound for one that is not on the register."""
        return await self.store.follow(self.store.operations.drain(worker))

    @property
    def schedules(self) -> "Schedules":
        """The schedules: put, look, pause, resume, run, remove."""
        from sublet.client.schedules import Schedules  # who has none has no use for the calendar

        return Schedules(self.store.operations, self.store.follow)

    async def sync(self, app: "App", source: str = "app", *, remove: bool = False) -> "Sequence[Synced]":
        """Have the schedules be as the app declares them; the same again writes nothing (see `Schedules.sync`)."""
        return await self.schedules.sync(app.schedules.all(), source, remove=remove)

    async def stats(self) -> list[Stats]:
        """The namespace in numbers, one entry a partition."""
        return await self.store.follow(self.store.operations.stats())

    async def aclose(self) -> None:
        """Let go of all connections."""
        if self._summoner:
            await self._summoner.aclose()
        await self.store.aclose()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class SyncClient:
    """The same for code without an event loop. Connects on first use; `with` closes it. Safe to share between threads."""

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
        """Carry out a plan of `self.operations`, in a namespace that is made where there is none."""
        self._prepare()
        return self.transport.follow(plan)

    def _prepare(self) -> None:
        if not self._ready:
            self.transport.follow(self.operations.prepare())
            self._ready = True

    def tend(self, plan: Plan[T]) -> T:
        """Carry out a plan that takes in nothing new: no namespace is made for it, and the server is asked nothing else."""
        return self.transport.follow(plan)

    def submit(
        self, task: str, payload: Any = None, options: Options = DEFAULT, *, job_id: str | None = None
    ) -> SyncHandle[Any]:
        """Submit one job by its task's name. Raises Invalid, Refused or Unavailable; sending the same `job_id` again is safe."""
        job = self.operations.submission(
            task, payload_of(payload or {}), options.queue, options.rules(), job_id, options.durability
        )
        (submitted,) = self.submit_all([job])
        created = submitted.created or (job_id is None and submitted.id == job.id)
        return SyncHandle(submitted.id, created, self, _loads)

    def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit many jobs in few calls; `Task.job(…)` makes them."""
        stored = self.follow(self.operations.submit(jobs))
        if self._summoner:
            self._summoner.nudge([job.queue for job in jobs])
        return stored

    def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = _loads) -> T:
        """Wait for a job's result. Raises JobFailed, JobCancelled, NotFound, or TimeoutError after `timeout` seconds."""
        self._prepare()  # with another number of partitions, a job that lives would not be found
        return outcome(
            job_id,
            watch_sync(self.transport, self.operations.base_of_job(job_id), job_id, timeout),
            decode,
            timeout,
        )

    def get(self, job_id: str) -> Job:
        """One job with its story. Raises NotFound."""
        return self.follow(self.operations.get(job_id))

    def list_jobs(self, **filters: Any) -> Page:
        """Jobs by `state`, `queue` and `task`, `limit` a page, from `cursor` on."""
        return self.follow(self.operations.list_jobs(**filters))

    def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Call a job off: `cancelled`, or `requested` when it runs. Raises WrongState when it has ended."""
        return self.follow(self.operations.cancel(job_id, revision))

    def retry(self, job_id: str, revision: int | None = None) -> str:
        """Revive a dead or cancelled job with all its tries."""
        return self.follow(self.operations.retry(job_id, revision))

    def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now."""
        return self.follow(self.operations.promote(job_id, revision))

    def pause(self, queue: str) -> str:
        """Hand out no more jobs of a queue; those that run go on, and new ones are taken in."""
        return self.follow(self.operations.pause(queue))

    def resume(self, queue: str) -> str:
        """Hand out the jobs of a paused queue again."""
        return self.follow(self.operations.resume(queue))

    def configure(self, queue: str, **limits: int | None) -> str:
        """Set limits: `jobs`, `bytes` of a queue, `completed`, `dead`, `cancelled` (jobs kept) of `*`; None lifts one."""
        return self.follow(self.operations.configure(queue, **limits))

    def queue(self, name: str) -> Queue:
        """One queue, known or not, with its limits; `*` has those of the whole namespace."""
        return self.follow(self.operations.queue(name))

    def queues(self) -> list[Queue]:
        """All queues that ever had a job or a setting."""
        return self.follow(self.operations.queues())

    def workers(self) -> list[WorkerInfo]:
        """All workers on the register, with what they hold; the latest heard of first."""
        return self.follow(self.operations.workers())

    def drain(self, worker: str) -> str:
        """Ask a worker to finish and go. Raises NotFound for one that is not on the register."""
        return self.follow(self.operations.drain(worker))

    @property
    def schedules(self) -> "SyncSchedules":
        """The schedules: put, look, pause, resume, run, remove."""
        from sublet.client.schedules import SyncSchedules  # who has none has no use for the calendar

        return SyncSchedules(self.operations, self.follow)

    def sync(self, app: "App", source: str = "app", *, remove: bool = False) -> "Sequence[Synced]":
        """Have the schedules be as the app declares them; the same again writes nothing (see `SyncSchedules.sync`)."""
        return self.schedules.sync(app.schedules.all(), source, remove=remove)

    def stats(self) -> list[Stats]:
        """The namespace in numbers, one entry a partition."""
        return self.follow(self.operations.stats())

    def reap(self, by: str) -> Reaped:
        """Do what time has decided: leases that ended go back, jobs that fell due are queued."""
        return self.follow(self.operations.reap(by))

    def prune(self) -> tuple[int, bool]:
        """Forget what is past its time: jobs forgotten, whether there may be more."""
        return self.follow(self.operations.prune())

    def close(self) -> None:
        """Let go of all connections; where workers are to be summoned, that is seen to first."""
        if self._summoner:
            self._summoner.close()
        self.transport.close()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
