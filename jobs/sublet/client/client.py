"""`Client`: submit jobs, wait for results, and operate a namespace."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sublet.client.handle import Handle
from sublet.client.result import load_json, outcome_of, result_of, unfinished
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
from sublet.store.store import Store

if TYPE_CHECKING:
    from sublet.client.schedules import Schedules
    from sublet.client.workflow import Workflow
    from sublet.operations.groups import Groups
    from sublet.operations.history import History, Span
    from sublet.operations.orders.audit import AuditPage
    from sublet.operations.orders.bulk import OrderPage, Selection
    from sublet.scaling.summoner import Summoner
    from sublet.schedules.decorators import DeclaresSchedules
    from sublet.schedules.operations import Synced

T = TypeVar("T")

DEFAULT = Options()


class Client:
    """A namespace's client, for one event loop. It connects at its first call; the end of
    `async with`, or `aclose`, closes it.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        store: Store | None = None,
        operations: Operations | None = None,
    ) -> None:
        self.store = store or Store(settings or Settings.read(), operations=operations)
        self._summoner: Summoner | None = None
        if self.store.settings.summon:
            from sublet.scaling.summoner import attach

            self._summoner = attach(self.store)

    async def submit(
        self, task: str, payload: Any = None, options: Options = DEFAULT, *, job_id: str | None = None
    ) -> Handle[Any]:
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
        submitted = await self.store.submit_one(job)
        created = submitted.created or (job_id is None and submitted.id == job.id)
        return Handle(submitted.id, created, self, load_json, replaced=submitted.replaced)

    async def submit_all(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Submit jobs made by `Task.job(…)`; return each one's id and whether it is new, in order. After an
        error some may be stored: repeat the call to store the others. Raises Invalid, Refused, Unavailable.
        """
        return await self.store.submit(jobs)

    async def result(self, job_id: str, timeout: float = 30.0, decode: Callable[[bytes], T] = load_json) -> T:
        """Wait for a job's end; return its result, which `decode` makes of the JSON. Raises JobFailed,
        JobCancelled, NotFound, PayloadLost; TimeoutError after `timeout` seconds.
        """
        return result_of(
            job_id, await self._whole(job_id, await self.store.watch(job_id, timeout)), decode, timeout
        )

    async def stream(
        self, job_id: str, after: int = 0, timeout: float = 300.0
    ) -> AsyncGenerator[Chunk, None]:
        """Yield a job's kept and new chunks with ids above `after` (all, if its stream has begun anew),
        until it has ended. Raises NotFound, Unavailable; TimeoutError after `timeout` seconds.
        """
        async with aclosing(self.store.stream(job_id, after, timeout)) as pages:
            async for page in pages:
                for chunk in page.chunks():
                    yield chunk
                if page.is_over:
                    return
        raise TimeoutError(
            f"job {job_id} has not ended after {timeout:g} s; it was not cancelled: stream it again, with `after` set to the last chunk's id"
        )

    async def _whole(self, job_id: str, standing: Standing) -> Standing:
        if not is_reference(standing.result):
            return standing
        return standing._replace(result=await self.store.fetch(job_id, standing.result))

    async def results(self, jobs: Sequence[Handle[Any] | str]) -> list[Outcome]:
        """Return each job's outcome, in order, without waiting: its state and, if it has ended, its result or
        error (NotFound for an unknown job). `jobs`: ids or handles.
        """
        handles = [Handle(job, False, self, load_json) if isinstance(job, str) else job for job in jobs]
        standings = await self.store.standings([handle.id for handle in handles])
        return [
            await self._outcome(handle, standing) for handle, standing in zip(handles, standings, strict=True)
        ]

    async def _outcome(self, handle: Handle[Any], standing: Standing) -> Outcome:
        try:
            standing = await self._whole(handle.id, standing)
        except JobsError as error:
            return Outcome(handle.id, standing.state, error=error)
        return outcome_of(handle.id, standing, handle._decode)

    @overload
    async def gather(
        self,
        handles: Sequence[Handle[T]],
        timeout: float = 30.0,
        *,
        return_exceptions: Literal[False] = False,
    ) -> list[T]: ...
    @overload
    async def gather(
        self, handles: Sequence[Handle[T]], timeout: float = 30.0, *, return_exceptions: bool
    ) -> list[T | Exception]: ...

    async def gather(
        self, handles: Sequence[Handle[Any]], timeout: float = 30.0, *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait up to `timeout` seconds for all results; return them in the handles' order. Raises at once the
        error of the first job that fails, or TimeoutError; with `return_exceptions` the list has the errors
        instead. Jobs continue.
        """
        values: dict[Handle[Any], Any] = {}
        async for handle in self._completed(handles, timeout):
            try:
                values[handle] = await handle.result()
            except Exception as error:
                if not return_exceptions:
                    raise
                values[handle] = error
        late = unfinished(len({*handles}) - len(values), len({*handles}), timeout)
        if len(values) < len({*handles}) and not return_exceptions:
            raise late
        return [values.get(handle, late) for handle in handles]

    async def as_completed(
        self, handles: Sequence[Handle[T]], timeout: float = 30.0
    ) -> AsyncIterator[Handle[T]]:
        """Yield each handle as soon as its job has ended, or if it is unknown; then `handle.result()` does
        not wait. Raises TimeoutError if some are left after `timeout` seconds.
        """
        left = {*handles}
        async for handle in self._completed(handles, timeout):
            left.remove(handle)
            yield handle
        if left:
            raise unfinished(len(left), len({*handles}), timeout)

    async def _completed(self, handles: Sequence[Handle[T]], timeout: float) -> AsyncIterator[Handle[T]]:
        by_id: dict[str, dict[Handle[T], None]] = {}
        for handle in handles:
            if not isinstance(handle, Handle):
                raise Invalid(
                    f"{handle!r} is not a {Handle.__name__}: use task.handle(job_id), or results(ids) for ids"
                )
            by_id.setdefault(handle.id, {})[handle] = None
        async for ended in self.store.watch_many([*by_id], timeout):
            for job_id, standing in ended.items():
                for handle in by_id[job_id]:
                    handle._ended = standing
                    yield handle

    def workflow(self, workflow_id: str = "") -> "Workflow":
        """Make a workflow. The end of `async with client.workflow() as flow:` stores the jobs that the block
        has added. With an id, return the stored one, without a check that it exists.
        """
        from sublet.client.workflow import Workflow

        return Workflow(self, workflow_id, _is_stored=bool(workflow_id))

    async def upstream(self, job_id: str) -> list[Outcome]:
        """Return the outcome of each job that a job waits or waited for, in the given order: state, and
        result or error (of a deleted one: NotFound). Raises NotFound if the job is unknown.
        """
        from sublet.workflows import operations

        return await self.results(await self.store.follow(operations.upstream(self.store.operations, job_id)))

    async def get(self, job_id: str) -> Job:
        """Return a job with its state, result (a large one: a reference) and attempts. Raises NotFound."""
        return await self.store.follow(self.store.operations.get(job_id))

    async def list_jobs(self, **filters: Any) -> Page:
        """Return a page of at most `limit` (default: 50) jobs that match all filters, from `cursor` on:
        `state` (one or several), `queue`, `task`, `tag`, `group`, `workflow`, `code` (of the last error),
        `worker`, `since` and `until` (of the submit). An empty page with a cursor is not the last.
        """
        return await self.store.follow(self.store.operations.list_jobs(**filters))

    async def cancel(self, job_id: str, revision: int | None = None) -> str:
        """Cancel a job. Return `cancelled`; of a running one `requested`: its worker will end it. Raises
        WrongState if it has ended, NotFound, Changed if it is not at this `revision`.
        """
        return await self.store.follow(self.store.operations.cancel(job_id, revision))

    async def retry(self, job_id: str, revision: int | None = None, *, anew: bool = False) -> str:
        """Queue a dead or cancelled job again, with all its tries; `anew` deletes its kept steps first.
        Return `queued`, or `scheduled` if it waits for other jobs again. Raises WrongState, NotFound,
        KeyTaken; Changed as `cancel` does.
        """
        return await self.store.follow(self.store.operations.retry(job_id, revision, anew=anew))

    async def signal(self, job_id: str, name: str, value: Any = None) -> str:
        """Send a signal, with a JSON value of at most 64 KiB, to an unfinished job: its `ctx.wait_for(name)`, now or later,
        returns the value. Return `kept`, also for a repetition. Raises WrongState if the job has ended, has
        another value of `name`, or its wait has timed out; NotFound, StepsFull, Invalid.
        """
        return await self.store.follow(self.store.operations.signal(job_id, name, value_of(value)))

    async def promote(self, job_id: str, revision: int | None = None) -> str:
        """Queue a scheduled job now, even if it waits for other jobs. Return `queued`. Raises WrongState if
        it is not scheduled, or waits for a signal; NotFound; Changed as `cancel` does.
        """
        return await self.store.follow(self.store.operations.promote(job_id, revision))

    async def reschedule(
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
        return (await self.store.follow(plan)).partition(" ")[0]

    async def erase(self, job_id: str, revision: int | None = None) -> str:
        """Delete a finished job and its large payloads. Return `erased`. Raises WrongState if the job is
        unfinished; NotFound; Changed as `cancel` does.
        """
        return await self.store.erase(job_id, revision)

    async def order_page(
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
        return await self.store.order_page(
            order, wanted, expected=expected, dry_run=dry_run, cursor=cursor, counted_at=counted_at
        )

    async def audit(self, limit: int = 50, cursor: str | None = None) -> "AuditPage":
        """Return a page of the commands that people gave over HTTP or on a command line, newest first. Redis
        keeps about 1,000 per partition.
        """
        return await self.store.follow_existing(self.store.operations.audit(limit, cursor))

    async def pause(self, queue: str) -> str:
        """Stop workers from claiming jobs of a queue; submits and running jobs continue. Return `paused`."""
        return await self.store.follow(self.store.operations.pause(queue))

    async def resume(self, queue: str) -> str:
        """Let workers claim jobs of a paused queue again. Return `resumed`."""
        return await self.store.follow(self.store.operations.resume(queue))

    async def configure(self, queue: str, **settings: float | str | None) -> str:
        """Set or remove (None) settings of a queue; return all as text, `per` in ms. `jobs` and `bytes`
        limit its unfinished jobs, `concurrency` the running ones, `rate` (with `burst`) the starts in `per`
        seconds; with `group_` in front, the last four limit each group. `on_dead`, TASK or QUEUE/TASK, is
        submitted for each dead job. Of the queue `*`: how many `completed`, `dead`, `cancelled` jobs and
        `queues` a partition keeps.
        """
        return await self.store.follow(self.store.operations.configure(queue, **settings))

    async def groups(self, queue: str, limit: int = 100, group: str | None = None) -> "Groups":
        """Return up to `limit` (≤ 1,000) groups of a queue, first those that a limit holds back; or only
        `group`.
        """
        return await self.store.follow(self.store.operations.groups(queue, limit, group))

    async def change_group(self, queue: str, group: str, **settings: float | None) -> str:
        """Set or remove (None) a group's own `concurrency`, `rate`, `per`, `burst` and `share`. Return all as
        text, `per` in ms.
        """
        return await self.store.follow(self.store.operations.change_group(queue, group, **settings))

    async def queue(self, name: str) -> Queue:
        """Return a queue, even an unknown one: its number of jobs, limits and settings. Of `*`: the
        namespace's settings.
        """
        return await self.store.follow(self.store.operations.queue(name))

    async def queues(self) -> list[Queue]:
        """Return all known queues, even empty ones, sorted by name."""
        return await self.store.follow(self.store.operations.queues())

    async def workers(self) -> list[WorkerInfo]:
        """Return registered workers, at most 1,000, the one with the latest heartbeat first."""
        return await self.store.follow(self.store.operations.workers())

    async def drain(self, worker: str) -> str:
        """Ask a worker to finish its running jobs and end. Return `drain`. Raises NotFound, Invalid, Changed
        if it restarts meanwhile.
        """
        return await self.store.follow(self.store.operations.drain(worker))

    @property
    def schedules(self) -> "Schedules":
        """Methods for the namespace's schedules."""
        from sublet.client.schedules import Schedules

        return Schedules(self.store)

    async def sync(
        self, app: "DeclaresSchedules", source: str = "app", *, remove: bool = False
    ) -> "Sequence[Synced]":
        """Store an app's schedules as those of `source`; with `remove`, delete the other schedules of `source`. Return for each
        `created`, `changed`, `unchanged` or `removed`.
        """
        return await self.schedules.sync(app.schedules.all(), source, remove=remove)

    async def stats(self) -> list[Stats]:
        """Return for each partition the number of jobs by state, and totals since its creation."""
        return await self.store.follow(self.store.operations.stats())

    async def history(self, span: "Span" = "hour") -> "History":
        """Return rates (per minute) and numbers of jobs over a `span`: the last `hour` or `day` by minutes,
        the last `month` (30 days) by hours; None where no worker or tick ran.
        """
        return await self.store.follow(self.store.operations.history(span))

    async def aclose(self) -> None:
        """Wait for started invocations of workers, up to 8 s (without an event loop 30 s); close all connections."""
        if self._summoner:
            await self._summoner.aclose()
        await self.store.aclose()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
