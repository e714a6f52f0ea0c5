"""Read workflows as they are stored, and the upstreams of a job."""

import re
from collections.abc import Container, Iterable, Sequence
from typing import Any, Literal, Protocol

from sublet.errors import Invalid, NotFound, Unfit
from sublet.model import Frozen, JobSummary, LastError, Page, State, Timestamp
from sublet.protocol import keys, reads
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.workflows import members

LIMIT = 200
"""Most jobs of a page."""
EDGES_SHOWN = 20
RESULTS_SHOWN = 1024 * 1024
"""Most bytes of results in a page of upstreams."""
_INDEX = re.compile(r"[0-9]{1,9}")


class Member(Frozen):
    """A job of a workflow, and the jobs that it waits for."""

    id: str
    state: State
    task: str
    queue: str
    after: tuple[str, ...] = ()
    """Ids of the jobs that it waits for, or waited for: the first 20."""
    after_count: int = 0
    """How many jobs it waits, or waited, for in all."""
    awaits: str | None = None
    """What it waits for, as `Job.awaits`: `upstream N`, `retry ID`, …; else None."""
    last_error: LastError | None = None
    """How its last unsuccessful attempt ended, or why its wait for others did; else None."""


class StoredWorkflow(Frozen):
    """A workflow: how many of its jobs have ended, and a page of its jobs, unfinished ones first. Deleted
    ones are only counted. If `cursor` is set, another page follows.
    """

    id: str
    state: Literal["open", "sealed", "cancelled"]
    """`sealed`: all jobs are stored. `open`: more are being stored. `cancelled`: it was cancelled before all
    were stored.
    """
    created_at: Timestamp
    ended_at: Timestamp | None = None
    """When the last of its jobs ended; None while one is unfinished."""
    unfinished: int
    """Its jobs that are scheduled, queued or running."""
    completed: int
    dead: int
    cancelled: int
    members: tuple[Member, ...] = ()
    cursor: str | None = None


class Upstream(Frozen):
    """A job for which another one waits, or waited."""

    id: str
    state: State | Literal["deleted"]
    """Its state; `deleted` if it was deleted: then only `id` is known."""
    task: str | None = None
    queue: str | None = None
    finished_at: Timestamp | None = None
    error: LastError | None = None
    """How its last unsuccessful attempt ended, or why its wait for others did; else None."""
    result: Any = None


class UpstreamPage(Frozen):
    """Some of the jobs for which a job waits, or waited; `count`: the number of all of them. If `cursor` is
    set, another page follows.
    """

    upstream: tuple[Upstream, ...]
    count: int
    cursor: str | None = None


class ListsJobs(Protocol):
    """The part of `Operations` that reads of workflows use."""

    def base_of_job(self, job_id: str) -> str:
        """Return the key prefix of a job's partition."""
        ...

    def list_jobs(
        self, state: Any = None, *, limit: int = 50, cursor: str | None = None, **filters: Any
    ) -> Plan[Page]:
        """Return a page of jobs."""
        ...


def get(
    operations: ListsJobs,
    workflow_id: str,
    limit: int = 50,
    cursor: str | None = None,
    state: State | str | Iterable[State] | None = None,
) -> Plan[StoredWorkflow]:
    """Return a workflow with up to `limit` (1 to 200) of its jobs in `state` (None: any). Raises NotFound,
    Invalid.
    """
    _check_limit(limit)
    base = operations.base_of_job(workflow_id)
    whole: StoredWorkflow = yield _head(base, workflow_id)
    page = yield from operations.list_jobs(state, limit=limit, cursor=cursor, workflow=workflow_id)
    found: list[Member] = (yield _edges(base, page.jobs)) if page.jobs else []
    return whole.model_copy(update={"members": tuple(found), "cursor": page.cursor})


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= LIMIT:
        raise Invalid(f"limit {limit}: use 1 to {LIMIT}")


def _head(base: str, workflow_id: str) -> Call[StoredWorkflow]:
    key = keys.members(base, workflow_id)
    fields = ("HMGET", keys.workflow(base, workflow_id), "state", "created_at", "ended_at")

    def read(reply: Sequence[Any]) -> StoredWorkflow:
        (state, created_at, ended_at), unfinished, *ended = reply
        if not state:
            members.unknown(workflow_id)
        try:
            return StoredWorkflow.model_validate(
                {
                    "id": workflow_id,
                    "state": state.decode(),
                    "created_at": reads.moment(created_at),
                    "ended_at": reads.moment(ended_at),
                    "unfinished": unfinished,
                    **dict(zip(members.ENDED_AS, ended, strict=True)),
                }
            )
        except ValueError as error:
            raise Unfit(
                f"the data of workflow {workflow_id} are inconsistent, so another program wrote to them ({type(error).__name__}): "
                f"look at them with HGETALL {keys.workflow(base, workflow_id)}, and correct them"
            ) from None

    return reads.together([fields, *(("ZCOUNT", key, score, score) for score in range(4))], read)


def _edges(base: str, jobs: Sequence[JobSummary]) -> Call[list[Member]]:
    def read(reply: Sequence[Any]) -> list[Member]:
        return [
            Member(
                **{
                    name: getattr(job, name)
                    for name in ("id", "state", "task", "queue", "awaits", "last_error")
                },
                after=tuple(map(reads.shown, after)),
                after_count=count,
            )
            for job, after, count in zip(jobs, reply[::2], reply[1::2], strict=True)
        ]

    commands: list[tuple[Any, ...]] = []
    for key in (keys.upstream(base, job.id) for job in jobs):
        commands += [("LRANGE", key, 0, EDGES_SHOWN - 1), ("LLEN", key)]
    return reads.together(commands, read)


def upstream(
    operations: ListsJobs,
    job_id: str,
    limit: int = 50,
    cursor: str | None = None,
    within: Container[str] | None = None,
    *,
    results: bool = True,
) -> Plan[UpstreamPage]:
    """Return up to `limit` (1 to 200) of the jobs that a job waits, or waited, for: those of the queues in
    `within` (None: all), with `results` of up to 1 MiB in all. Raises NotFound, Invalid.
    """
    _check_limit(limit)
    if cursor is not None and not _INDEX.fullmatch(cursor):
        raise Invalid(f"cursor {cursor[:80]!r}: use the cursor of the page before")
    base, start = operations.base_of_job(job_id), int(cursor or 0)
    count, ids = yield _listed(base, job_id, start, limit)
    jobs: list[JobSummary] = (yield reads.summaries(base, ids, results=True)) if ids else []
    by_id = {job.id: job for job in jobs}
    if results:
        ids = _fitting(ids, by_id)
    found = yield from _results(base, [one for one in ids if results and one in by_id])
    shown = [
        _upstream(one, by_id.get(one), found.get(one))
        for one in ids
        if within is None or (one in by_id and by_id[one].queue in within)
    ]
    end = start + len(ids)
    return UpstreamPage(upstream=tuple(shown), count=count, cursor=str(end) if end < count else None)


def _listed(base: str, job_id: str, start: int, limit: int) -> Call[tuple[int, list[str]]]:
    key = keys.upstream(base, job_id)

    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        is_there, count, ids = reply
        if not is_there:
            raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
        return count, [reads.shown(one) for one in ids]

    commands = (
        ("HLEN", keys.job(base, job_id)),
        ("LLEN", key),
        ("LRANGE", key, start, start + limit - 1),
    )
    return reads.together(commands, read)


def _fitting(ids: Sequence[str], jobs: dict[str, JobSummary]) -> Sequence[str]:
    size = 0
    for at, job_id in enumerate(ids):
        size += (jobs[job_id].result_bytes or 0) if job_id in jobs else 0
        if size > RESULTS_SHOWN and at:
            return ids[:at]
    return ids


def _results(base: str, ids: Sequence[str]) -> Plan[dict[str, Any]]:
    if not ids:
        return {}

    def read(reply: Sequence[Any]) -> dict[str, Any]:
        return {job_id: reads.json_of(result) for job_id, result in zip(ids, reply, strict=True)}

    found: dict[str, Any] = yield reads.together(
        [("HGET", keys.job(base, job_id), "result") for job_id in ids], read
    )
    return found


def _upstream(job_id: str, job: JobSummary | None, result: Any) -> Upstream:
    if job is None:
        return Upstream(id=job_id, state="deleted")
    return Upstream(
        **{name: getattr(job, name) for name in ("id", "state", "task", "queue", "finished_at")},
        error=job.last_error,
        result=result,
    )
