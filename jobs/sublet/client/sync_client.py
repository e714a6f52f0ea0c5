# Generated from client.py by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.
"""`SyncClient`: submit jobs, wait for results, and operate a namespace."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sublet.client.result import load_json, outcome_of, result_of, unfinished
from sublet.client.sync_handle import SyncHandle
from sublet.connection.settings import Settings
from sublet.errors import Invalid, JobsError
from sublet.large_payloads.storage import is_reference
from sublet.model import Job, Page, Queue, Standing, Stats, Submission, Submitted, WorkerInfo
from sublet.operations.operations import Operations
from sublet.options import Options, Seconds
from sublet.outcome import Outcome
from sublet.protocol.payload import payload_of
from sublet.steps.calls import value_of
from sublet.steps.chunks import Chunk
from sublet.store.sync_store import SyncStore

if TYPE_CHECKING:
    from sublet.client.sync_schedules import SyncSchedules
    from sublet.client.sync_workflow import SyncWorkflow
    from sublet.operations.groups import Groups
    from sublet.operations.history import History, Span
    from sublet.operations.orders.audit import AuditPage
    from sublet.operations.orders.bulk import OrderPage, Selection
    from sublet.scaling.sync_summoner import SyncSummoner
    from sublet.schedules.decorators import DeclaresSchedules
    from sublet.schedules.operations import Synced

T = TypeVar("T")

DEFAULT = Options()


class SyncClient:
    """A namespace's client, without an event loop; threads may share it. It connects at its first call; the end of
    `with`, or `close`, closes it.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        store: SyncStore | None = None,
        operations: Operations | None = None,
    ) -> None:
        self.store = store or SyncStore(settings or Settings.read(), operations=operations)
        self._summoner: SyncSummoner | None = None
        if self.store.settings.summon:
            from sublet.scaling.sync_summoner import attach

            self._summoner = attach(self.store)

    def submit(
        self, task: str, payload: Any = None, options: Options = DEFAULT, *, job_id: str | None = None
    ) -> SyncHandle[Any]:
        """Submit a job by its task's name and `payload`, its arguments by name (or their JSON). Return the
        handle of the new job, or of the earlier one with this `job_id` or key. Raises Invalid, Refused,
        Unavailable.
        """
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
        return SyncHandle(submitted.id, created, self, load_json, replaced=submitted.replaced)

    def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit jobs made by `Task.job(…)`; return each one's id and whether it is new, in order. After an
        error some may be stored: repeat the call to store the others. Raises Invalid, Refused, Unavailable.
        """
        return self.store.submit(jobs)

    def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = load_json) -> T:
        """Wait for a job's end; return its result, which `decode` makes of the JSON. Raises JobFailed,
        JobCancelled, NotFound, PayloadLost; TimeoutError after `timeout` seconds.
        """
        return result_of(job_id, self._whole(job_id, self.store.watch(job_id, timeout)), decode, timeout)

    def stream(self, job_id: str, after: int = 0, timeout: float = 300.0) -> Generator[Chunk, None]:
        """Yield a job's kept and new chunks with ids above `after` (all, if its stream has begun anew),
        until it has ended. Raises NotFound, Unavailable; TimeoutError after `timeout` seconds.
        """
        with closing(self.store.stream(job_id, after, timeout)) as pages:
            for page in pages:
                for chunk in page.chunks():
                    yield chunk
                if page.is_over:
                    return
        raise TimeoutError(
            f"job {job_id} has not ended after {timeout:g} s; it was not cancelled: stream it again, with `after` set to the last chunk's id"
        )

    def _whole(self, job_id: str, standing: Standing) -> Standing:
        if not is_reference(standing.result):
            return standing
        return standing._replace(result=self.store.fetch(job_id, standing.result))

    def results(self, jobs: Sequence[SyncHandle[Any] | str]) -> list[Outcome]:
        """Return each job's outcome, in order, without waiting: its state and, if it has ended, its result or
        error (NotFound for an unknown job). `jobs`: ids or handles.
        """
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
        """Wait up to `timeout` seconds for all results; return them in the handles' order. Raises at once the
        error of the first job that fails, or TimeoutError; with `return_exceptions` the list has the errors
        instead. Jobs continue.
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
        """Yield each handle as soon as its job has ended, or if it is unknown; then `handle.result()` does
        not wait. Raises TimeoutError if some are left after `timeout` seconds.
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
                    f"{handle!r} is not a {SyncHandle.__name__}: use task.handle_sync(job_id), or results(ids) for ids"
                )
            by_id.setdefault(handle.id, {})[handle] = None
        for ended in self.store.watch_many([*by_id], timeout):
            for job_id, standing in ended.items():
                for handle in by_id[job_id]:
                    handle._ended = standing
                    yield handle

    def workflow(self, workflow_id: str = "") -> "SyncWorkflow":
        """Make a workflow. The end of `with client.workflow() as flow:` stores the jobs that the block
        has added. With an id, return the stored one, without a check that it exists.
        """
        from sublet.client.sync_workflow import SyncWorkflow

        return SyncWorkflow(self, workflow_id, _is_stored=bool(workflow_id))

    def upstream(self, job_id: str) -> list[Outcome]:
        """Return the outcome of each job that a job waits or waited for, in the given order: state, and
        result or error (of a deleted one: NotFound). Raises NotFound if the job is unknown.
        """
        from sublet.workflows import operations

        return self.results(self.store.follow(operations.upstream(self.store.operations, job_id)))

    def get(self, job_id: str) -> Job:
        """Return a job with its state, result (a large one: a reference) and attempts. Raises NotFound."""
        return self.store.follow(self.store.operations.get(job_id))

    def list_jobs(self, **filters: Any) -> Page:
        """Return a page of at most `limit` (default: 50) jobs that match all filters, from `cursor` on:
        `state` (one or several), `queue`, `task`, `tag`, `group`, `workflow`, `code` (of the last error),
        `worker`, `since` and `until` (of the submit). An empty page with a cursor is not the last.
        """
        return self.store.follow(self.store.operations.list_jobs(**filters))

    def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Cancel a job. Return `cancelled`; of a running one `requested`: its worker will end it. Raises
        WrongState if it has ended, NotFound, Changed if it is not at this `revision`.
        """
        return self.store.follow(self.store.operations.cancel(job_id, revision))

    def retry(self, job_id: str, revision: int | None = None, *, anew: bool = False) -> str:
        """Queue a dead or cancelled job again, with all its tries; `anew` deletes its kept steps first.
        Return `queued`, or `scheduled` if it waits for other jobs again. Raises WrongState, NotFound,
        KeyTaken; Changed as `cancel` does.
        """
        return self.store.follow(self.store.operations.retry(job_id, revision, anew=anew))

    def signal(self, job_id: str, name: str, value: Any = None) -> str:
        """Send a signal, with a JSON value of at most 64 KiB, to an unfinished job: its `ctx.wait_for(name)`, now or later,
        returns the value. Return `kept`, also for a repetition. Raises WrongState if the job has ended, has
        another value of `name`, or its wait has timed out; NotFound, StepsFull, Invalid.
        """
        return self.store.follow(self.store.operations.signal(job_id, name, value_of(value)))

    def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now, even if it waits for other jobs. Return `queued`. Raises WrongState if
        it is not scheduled, or waits for a signal; NotFound; Changed as `cancel` does.
        """
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
        """Give a scheduled or queued job another time (`run_at`, or `delay` from now), priority, or both.
        Return `scheduled` or `queued`. Raises WrongState if the job runs or has ended, or if it waits for other
        jobs and is to get a time; Invalid, NotFound; Changed as `cancel` does.
        """
        plan = self.store.operations.reschedule(
            job_id, revision, run_at=run_at, delay=delay, priority=priority
        )
        return (self.store.follow(plan)).partition(" ")[0]

    def erase(self, job_id: str, revision: int | None = None) -> str:
        """Delete a finished job and its large payloads. Return `erased`. Raises WrongState if the job is
        unfinished; NotFound; Changed as `cancel` does.
        """
        return self.store.erase(job_id, revision)

    def order_page(
        self,
        order: Literal["retry", "cancel", "promote", "erase"],
        wanted: "Selection",
        *,
        expected: int | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
        counted_at: datetime | None = None,
    ) -> "OrderPage":
        """Carry out `order` for a page, at most 200, of the jobs that match `wanted` (without a state or
        workflow: `retry` only dead ones, `cancel` none that run); with `dry_run` only count them. `cursor`:
        the previous page's. Jobs submitted or ended after `counted_at` (None: the first call) are left out.
        Raises Changed if the pages find over a tenth more jobs than `expected`.
        """
        return self.store.order_page(
            order, wanted, expected=expected, dry_run=dry_run, cursor=cursor, counted_at=counted_at
        )

    def audit(self, limit: int = 50, cursor: str | None = None) -> "AuditPage":
        """Return a page of the commands that people gave over HTTP or on a command line, newest first. Redis
        keeps about 1,000 per partition.
        """
        return self.store.follow_existing(self.store.operations.audit(limit, cursor))

    def pause(self, queue: str) -> str:
        """Stop workers from claiming jobs of a queue; submits and running jobs continue. Return `paused`."""
        return self.store.follow(self.store.operations.pause(queue))

    def resume(self, queue: str) -> str:
        """Let workers claim jobs of a paused queue again. Return `resumed`."""
        return self.store.follow(self.store.operations.resume(queue))

    def configure(self, queue: str, **settings: float | str | None) -> str:
        """Set or remove (None) settings of a queue; return all as text, `per` in ms. `jobs` and `bytes`
        limit its unfinished jobs, `concurrency` the running ones, `rate` (with `burst`) the starts in `per`
        seconds; with `group_` in front, the last four limit each group. `on_dead`, TASK or QUEUE/TASK, is
        submitted for each dead job. Of the queue `*`: how many `completed`, `dead`, `cancelled` jobs and
        `queues` a partition keeps.
        """
        return self.store.follow(self.store.operations.configure(queue, **settings))

    def groups(self, queue: str, limit: int = 100, group: str | None = None) -> "Groups":
        """Return up to `limit` (≤ 1,000) groups of a queue, first those that a limit holds back; or only
        `group`.
        """
        return self.store.follow(self.store.operations.groups(queue, limit, group))

    def change_group(self, queue: str, group: str, **settings: float | None) -> str:
        """Set or remove (None) a group's own `concurrency`, `rate`, `per`, `burst` and `share`. Return all as
        text, `per` in ms.
        """
        return self.store.follow(self.store.operations.change_group(queue, group, **settings))

    def queue(self, name: str) -> Queue:
        """Return a queue, even an unknown one: its number of jobs, limits and settings. Of `*`: the
        namespace's settings.
        """
        return self.store.follow(self.store.operations.queue(name))

    def queues(self) -> list[Queue]:
        """Return all known queues, even empty ones, sorted by name."""
        return self.store.follow(self.store.operations.queues())

    def workers(self) -> list[WorkerInfo]:
        """Return registered workers, at most 1,000, the one with the latest heartbeat first."""
        return self.store.follow(self.store.operations.workers())

    def drain(self, worker: str) -> str:
        """Ask a worker to finish its running jobs and end. Return `drain`. Raises NotFound, Invalid, Changed
        if it restarts meanwhile.
        """
        return self.store.follow(self.store.operations.drain(worker))

    @property
    def schedules(self) -> "SyncSchedules":
        """Methods for the namespace's schedules."""
        from sublet.client.sync_schedules import SyncSchedules

        return SyncSchedules(self.store)

    def sync(
        self, app: "DeclaresSchedules", source: str = "app", *, remove: bool = False
    ) -> "Sequence[Synced]":
        """Store an app's schedules as those of `source`; with `remove`, delete the other schedules of `source`. Return for each
        `created`, `changed`, `unchanged` or `removed`.
        """
        return self.schedules.sync(app.schedules.all(), source, remove=remove)

    def stats(self) -> list[Stats]:
        """Return for each partition the number of jobs by state, and totals since its creation."""
        return self.store.follow(self.store.operations.stats())

    def history(self, span: "Span" = "hour") -> "History":
        """Return rates (per minute) and numbers of jobs over a `span`: the last `hour` or `day` by minutes,
        the last `month` (30 days) by hours; None where no worker or tick ran.
        """
        return self.store.follow(self.store.operations.history(span))

    def close(self) -> None:
        """Wait for started invocations of workers, up to 8 s (without an event loop 30 s); close all connections."""
        if self._summoner:
            self._summoner.close()
        self.store.close()

    def __enter__(self) -> "SyncClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
