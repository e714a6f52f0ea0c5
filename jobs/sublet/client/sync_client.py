# Generated from client.py by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.
"""`SyncClient`: each method runs one plan of `Operations`."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sublet.client.result import Outcome, load_json, outcome_of, result_of, unfinished
from sublet.client.sync_handle import SyncHandle
from sublet.connection.settings import Settings
from sublet.errors import Invalid, JobsError
from sublet.large_payloads.storage import is_reference
from sublet.model import Job, Page, Queue, Standing, Stats, Submission, Submitted, WorkerInfo
from sublet.operations.operations import Operations
from sublet.options import Options, Seconds
from sublet.protocol.payload import payload_of
from sublet.store.sync_store import SyncStore

if TYPE_CHECKING:
    from sublet.client.sync_schedules import SyncSchedules
    from sublet.operations.history import History, Span
    from sublet.operations.orders.audit import AuditPage
    from sublet.operations.orders.bulk import OrderPage, Selection
    from sublet.scaling.sync_summoner import SyncSummoner
    from sublet.schedules.decorators import DeclaresSchedules
    from sublet.schedules.operations import Synced

T = TypeVar("T")

DEFAULT = Options()


class SyncClient:
    """The client without an event loop; threads may share it. Connects on first use; `with` closes it."""

    def __init__(
        self,
        settings: Settings | None = None,
        store: SyncStore | None = None,
        operations: Operations | None = None,
    ) -> None:
        self.store = store or SyncStore(settings or Settings.read(), operations=operations)
        self._summoner: SyncSummoner | None = None
        if self.store.settings.summon:
            from sublet.scaling.sync_summoner import attach  # most clients summon no workers

            self._summoner = attach(self.store)

    def submit(
        self, task: str, payload: Any = None, options: Options = DEFAULT, *, job_id: str | None = None
    ) -> SyncHandle[Any]:
        """Submit by task name; safe to repeat with one `job_id`. Raises Invalid, Refused, Unavailable."""
        job = self.store.operations.submission(
            task,
            payload_of({} if payload is None else payload),
            options.queue,
            options.rules(),
            job_id,
            options.durability,
        )
        submitted = self.store.submit_one(job)
        created = submitted.created or (job_id is None and submitted.id == job.id)
        return SyncHandle(submitted.id, created, self, load_json)

    def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit jobs made by `Task.job(…)`. After an error some may be stored: repeat it."""
        return self.store.submit(jobs)

    def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = load_json) -> T:
        """Wait for a result. Raises JobFailed, JobCancelled, NotFound, PayloadLost; after `timeout` (s)
        TimeoutError.
        """
        return result_of(job_id, self._whole(job_id, self.store.watch(job_id, timeout)), decode, timeout)

    def _whole(self, job_id: str, standing: Standing) -> Standing:
        """The standing with its large result, if it has only a reference."""
        if not is_reference(standing.result):
            return standing
        return standing._replace(result=self.store.fetch(job_id, standing.result))

    def results(self, jobs: Sequence[SyncHandle[Any] | str]) -> list[Outcome]:
        """Return the present outcomes of jobs, given by id or handle, in this order: 50 jobs a call, without waiting."""
        handles = [SyncHandle(job, False, self, load_json) if isinstance(job, str) else job for job in jobs]
        standings = self.store.standings([handle.id for handle in handles])
        return [self._outcome(handle, standing) for handle, standing in zip(handles, standings, strict=True)]

    def _outcome(self, handle: SyncHandle[Any], standing: Standing) -> Outcome:
        try:
            standing = self._whole(handle.id, standing)
        except JobsError as error:
            return Outcome(handle.id, standing.state, error=error)
        return outcome_of(handle.id, standing, handle._decode)

    @overload
    def gather(
        self,
        handles: Sequence[SyncHandle[T]],
        timeout: float = 30.0,
        *,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...
    @overload
    def gather(
        self, handles: Sequence[SyncHandle[T]], timeout: float = 30.0, *, return_exceptions: bool
    ) -> list[T | Exception]: ...

    def gather(
        self, handles: Sequence[SyncHandle[Any]], timeout: float = 30.0, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for all results; return them in the handles' order. The first error is raised at once, as by
        `SyncHandle.result`; with `return_exceptions` errors are in the list. The jobs go on.
        """
        values: dict[SyncHandle[Any], Any] = {}
        for handle in self._completed(handles, timeout):
            try:
                values[handle] = handle.result()
            except Exception as error:
                if not return_exceptions:
                    raise
                values[handle] = error
        late = unfinished(len({*handles}) - len(values), len({*handles}), timeout)
        if len(values) < len({*handles}) and not return_exceptions:
            raise late
        return [values.get(handle, late) for handle in handles]

    def as_completed(
        self, handles: Sequence[SyncHandle[T]], timeout: float = 30.0
    ) -> Iterator[SyncHandle[T]]:
        """Yield each handle when its job has ended: its `result` then asks Redis nothing. After `timeout` (s) raises
        TimeoutError.
        """
        left = {*handles}
        for handle in self._completed(handles, timeout):
            left.remove(handle)
            yield handle
        if left:
            raise unfinished(len(left), len({*handles}), timeout)

    def _completed(self, handles: Sequence[SyncHandle[T]], timeout: float) -> Iterator[SyncHandle[T]]:
        by_id: dict[str, dict[SyncHandle[T], None]] = {}
        for handle in handles:
            if not isinstance(handle, SyncHandle):
                raise Invalid(
                    f"{handle!r} is not a {SyncHandle.__name__}: use task.handle(job_id), or results(ids) for ids"
                )
            by_id.setdefault(handle.id, {})[handle] = None
        for ended in self.store.watch_many([*by_id], timeout):
            for job_id, standing in ended.items():
                for handle in by_id[job_id]:
                    handle._ended = standing
                    yield handle

    def get(self, job_id: str) -> Job:
        """Return a job with its attempts. Raises NotFound."""
        return self.store.follow(self.store.operations.get(job_id))

    def list_jobs(self, **filters: Any) -> Page:
        """Return at most `limit` (50) jobs from `cursor` on, by `state` (one or several), `queue`, `task`, `tag`, `code`,
        `worker`, and the time of submission (`since`, `until`). A page may be empty and have a cursor.
        """
        return self.store.follow(self.store.operations.list_jobs(**filters))

    def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Cancel a job: `cancelled`, or `requested` if it runs. Raises WrongState; Changed if not at
        `revision`.
        """
        return self.store.follow(self.store.operations.cancel(job_id, revision))

    def retry(self, job_id: str, revision: int | None = None) -> str:
        """Queue a dead or cancelled job again, with all tries. Raises WrongState, KeyTaken."""
        return self.store.follow(self.store.operations.retry(job_id, revision))

    def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now. Raises WrongState."""
        return self.store.follow(self.store.operations.promote(job_id, revision))

    def reschedule(
        self,
        job_id: str,
        *,
        run_at: datetime | None = None,
        delay: Seconds | None = None,
        priority: int | None = None,
        revision: int | None = None,
    ) -> str:
        """Move a waiting job to another time, change its priority, or both: `scheduled`, or `queued` if it is due. Raises
        WrongState, Invalid; Changed if not at `revision`.
        """
        plan = self.store.operations.reschedule(
            job_id, revision, run_at=run_at, delay=delay, priority=priority
        )
        return (self.store.follow(plan)).partition(" ")[0]

    def erase(self, job_id: str, revision: int | None = None) -> str:
        """Delete a finished job for good: `erased`. Raises WrongState: cancel it first; NotFound if gone."""
        return self.store.erase(job_id, revision)

    def order_page(
        self,
        order: Literal["retry", "cancel", "promote", "erase"],
        wanted: "Selection",
        *,
        expected: int | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
    ) -> "OrderPage":
        """Order up to 200 jobs, or count them. Raises Changed if `expected` is off by a tenth."""
        return self.store.order_page(order, wanted, expected=expected, dry_run=dry_run, cursor=cursor)

    def audit(self, limit: int = 50, cursor: str | None = None) -> "AuditPage":
        """Return orders that people gave over HTTP or by commands, newest first. About 1,000 are kept per partition."""
        return self.store.follow_existing(self.store.operations.audit(limit, cursor))

    def pause(self, queue: str) -> str:
        """Stop claims from a queue. Submits and running jobs go on. Returns `paused`."""
        return self.store.follow(self.store.operations.pause(queue))

    def resume(self, queue: str) -> str:
        """Allow claims from a queue again. Returns `resumed`."""
        return self.store.follow(self.store.operations.resume(queue))

    def configure(self, queue: str, **settings: int | str | None) -> str:
        """Set or remove (None) settings of a queue: limits of `jobs` and `bytes`; of `*`, of `completed`, `dead`,
        `cancelled` jobs kept per partition and of `queues`; and `on_dead`, TASK or QUEUE/TASK, which reports
        each dead job.
        """
        return self.store.follow(self.store.operations.configure(queue, **settings))

    def queue(self, name: str) -> Queue:
        """Return a queue with its limits; `*`: only the limits of finished jobs."""
        return self.store.follow(self.store.operations.queue(name))

    def queues(self) -> list[Queue]:
        """Return all queues that ever had a job or setting, sorted."""
        return self.store.follow(self.store.operations.queues())

    def workers(self) -> list[WorkerInfo]:
        """Return up to 1,000 workers, the latest seen first."""
        return self.store.follow(self.store.operations.workers())

    def drain(self, worker: str) -> str:
        """Ask a worker to finish its jobs and exit. Raises NotFound."""
        return self.store.follow(self.store.operations.drain(worker))

    @property
    def schedules(self) -> "SyncSchedules":
        """The namespace's schedules."""
        from sublet.client.sync_schedules import SyncSchedules  # the calendar is slow to load

        return SyncSchedules(self.store)

    def sync(
        self, app: "DeclaresSchedules", source: str = "app", *, remove: bool = False
    ) -> "Sequence[Synced]":
        """Store an app's schedules (see `SyncSchedules.sync`)."""
        return self.schedules.sync(app.schedules.all(), source, remove=remove)

    def stats(self) -> list[Stats]:
        """Return each partition's statistics."""
        return self.store.follow(self.store.operations.stats())

    def history(self, span: "Span" = "hour") -> "History":
        """Return rates and sizes of the last `hour` or `day` by minutes, or of the last `month` (30 days) by hours, None
        where no worker or tick ran. Raises Invalid for another span.
        """
        return self.store.follow(self.store.operations.history(span))

    def close(self) -> None:
        """Finish summoning within 8 s, and close all connections."""
        if self._summoner:
            self._summoner.close()
        self.store.close()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
