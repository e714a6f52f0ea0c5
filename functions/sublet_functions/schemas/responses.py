"""Models of response bodies, for the OpenAPI document. Frequently used handlers build plain dictionaries."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sublet.model import InSeconds, JobSummary, Queue, State, Timestamp, WorkerInfo
from sublet.operations.orders.audit import AuditEntry
from sublet.operations.pool import Pool
from sublet.tasks.catalogue import TaskInfo


class ResponseModel(BaseModel):
    """Base of the models of response bodies."""

    model_config = ConfigDict(frozen=True)


WARNING = "What the worker will probably refuse. Only with `SUBLET_CHECK_TASKS=warn`, the default of a server without an app."

REPLACED = "Whether this job, which waits, has got the arguments of the request (`debounce`, `on_conflict`)."


class SubmittedJob(ResponseModel):
    """Id of the stored job, or of the one that was there: the status tells which."""

    id: str
    replaced: bool | None = Field(None, description=REPLACED)
    warning: str | None = Field(None, description=WARNING)


class SubmittedItem(ResponseModel):
    """Outcome of one job of a batch: status 201 (stored) or 200 (existing), or the status of a problem."""

    id: str
    status: int
    type: str | None = None
    detail: str | None = None
    replaced: bool | None = Field(None, description=REPLACED)
    warning: str | None = Field(None, description=WARNING)


class SubmittedBatch(ResponseModel):
    """Outcomes of the jobs, in the order of the request."""

    jobs: list[SubmittedItem]


class Leased(ResponseModel):
    """A claimed job with its lease."""

    id: str
    task: str
    queue: str
    payload: Any
    attempt: int
    max_attempts: int = Field(description="Tries before the job is dead.")
    tries_left: int = Field(description="Tries left after this attempt; 0: it is the last.")
    token: str = Field(
        description="Proves that the caller holds the lease. Keep it secret: it can end the attempt."
    )
    lease_expires_at: Timestamp
    timeout: InSeconds | None = Field(description="Time limit of the attempt in seconds; null for none.")
    stall: InSeconds | None = Field(
        None, description="Most seconds without a report of progress or a checkpoint; left out for none."
    )
    recovered: str = Field(
        description="Code with which the previous attempt ended; empty on the first attempt, and if it is not known."
    )
    trace: str | None = None
    occurrence: Timestamp | None = Field(
        None, description="The occurrence of the schedule that made the job."
    )
    tags: list[str] = Field([], description="The job's tags; left out without any.")
    lost: bool = Field(
        False, description="true if the previous attempt's lease ended without an outcome; else left out."
    )
    checkpoint: Any = Field(None, description="The checkpoint that an earlier attempt left.")


class LeasedBatch(ResponseModel):
    """The claimed jobs with their leases."""

    jobs: list[Leased]


class LeaseExtension(ResponseModel):
    """The lease's new end, or a requested cancel."""

    id: str
    lease_expires_at: Timestamp | None = Field(
        description="null when a cancel was requested: stop the attempt, and fail with code cancelled."
    )
    cancel_requested: bool


class JobState(ResponseModel):
    """The job's state after the request. `due_at`: when a scheduled job is queued again, if known. `reason`: why
    `/proceed` has made the job dead.
    """

    id: str
    state: State
    due_at: Timestamp | None = None
    reason: str | None = None


class ErasedJob(ResponseModel):
    """The deleted job."""

    id: str
    state: Literal["erased"]


class BatchItem(ResponseModel):
    """Outcome of one job of a batch: the response of the route for one job, with its status, or a problem."""

    id: str
    status: int
    state: State | None = None
    due_at: Timestamp | None = None
    lease_expires_at: Timestamp | None = None
    cancel_requested: bool | None = None
    type: str | None = None
    detail: str | None = None


class BatchResult(ResponseModel):
    """Outcomes of the jobs, in the order of the request."""

    jobs: list[BatchItem]


class JobsPage(ResponseModel):
    """One page of jobs. While `cursor` is set another page follows, even if this one is short or empty."""

    jobs: list[JobSummary]
    cursor: str | None


class AuditPage(ResponseModel):
    """One page of the audit, newest first. While `cursor` is set another follows."""

    entries: list[AuditEntry]
    cursor: str | None


class QueuesPage(ResponseModel):
    """One page of queues, not always ordered by name."""

    queues: list[Queue]
    cursor: str | None


class GroupStored(ResponseModel):
    """A group's own settings, as they are stored; empty for none."""

    settings: str


class Event(ResponseModel):
    """One change of state, which up to ten jobs made together."""

    id: str = Field(description="Position in the event stream, to be sent as `after` or Last-Event-ID.")
    at: Timestamp
    jobs: list[str]
    state: State
    code: str = Field(description="Cause: `submitted`, the worker's name, a failure's code, …")


class EventsPage(ResponseModel):
    """One page of events, oldest first; it may be empty."""

    events: list[Event]
    cursor: str = Field(description="Position after this page, to be sent as `after`.")
    missed: bool = Field(
        description="Events after the requested position were already deleted: read the jobs instead."
    )


class TasksPage(ResponseModel):
    """One page of tasks, ordered by name."""

    tasks: list[TaskInfo]
    cursor: str | None


class PublishResult(ResponseModel):
    """How many tasks got the description that was sent (`written`), kept the one they had, or found the
    catalogue full.
    """

    written: int
    kept: int
    full: int


class WorkerList(ResponseModel):
    """Registered workers, the latest heartbeat first."""

    workers: list[WorkerInfo]


class EnlistResult(ResponseModel):
    """`drain`: the worker must finish its jobs and end."""

    drain: bool


class RetireResult(ResponseModel):
    """`leave`: the worker may end. Then the pool counts it no longer, and it must not claim."""

    leave: bool


class ReconcileResult(ResponseModel):
    """`ended`: number of leases that were ended."""

    ended: int


class PoolList(ResponseModel):
    """The pools that the token may see, sorted by name; the first 100 with the calculation of their wanted workers."""

    pools: list[Pool]


class TickResult(ResponseModel):
    """Totals of a tick's rounds: leases ended (`reaped`), due jobs queued (`promoted`), jobs pruned,
    occurrences fired; workers invoked (`summoned`), or not (`unreached`).
    """

    reaped: int
    promoted: int
    pruned: int
    fired: int
    summoned: int
    unreached: int
    rounds: int


class WorkSummary(ResponseModel):
    """Totals of the run of a worker."""

    completed: int
    failed: int
    cancelled: int = Field(description="Attempts that were stopped on request.")
    released: int = Field(description="Jobs given back unfinished.")
    suspended: int = Field(description="Attempts that ended with a sleep or a wait of their task.")
    refused: int = Field(description="Outcomes that were refused because the lease was lost.")
    seconds: InSeconds
    stalled: bool


class Stats(ResponseModel):
    """Statistics of the namespace, or sums over the queues that were asked for or that the token may use:
    then numbers of jobs that are not counted per queue are null.
    """

    scheduled: int = Field(
        description="Jobs that wait for a time (a delay, a backoff, a sleep), for a signal, or for other jobs."
    )
    ready: int = Field(
        description="Queued jobs that workers can claim now: no pause and no limit holds them back."
    )
    queued: int = Field(description="Jobs that wait for a worker, including those of paused queues.")
    running: int = Field(description="Jobs under a lease.")
    backlog: int = Field(description="Sum of scheduled, queued and running.")
    completed: int | None = Field(description="Completed jobs that are still kept. Null for queues.")
    dead: int | None = Field(description="Dead jobs that are still kept. Null for queues.")
    cancelled: int | None = Field(description="Cancelled jobs that are still kept. Null for queues.")
    oldest_queued_seconds: float = Field(
        description="Seconds since the job at the head of a queue was due; the longest of all queues."
    )
    submitted_total: int | None = Field(description="Jobs submitted. Null for queues.")
    completed_total: int = Field(description="Results accepted.")
    failed_total: int = Field(
        description="Failures accepted, including those of jobs that were tried again, without attempts that were cancelled."
    )
    dead_total: int = Field(description="Jobs that became dead.")
    cancelled_total: int = Field(description="Jobs that became cancelled.")
    released_total: int | None = Field(description="Jobs released. Null for queues.")
    unknown_task_total: int | None = Field(
        description="Jobs released because the worker has no such task. Null for queues."
    )
    expired_total: int | None = Field(
        description="Leases that expired, or whose worker was gone. Null for queues."
    )
    lease_lost_total: int | None = Field(
        description="Outcomes refused because the lease was lost. Null for queues."
    )
    queue_full_total: int | None = Field(
        description="Jobs refused because the queue was full. Null for queues."
    )
    forgotten_total: int | None = Field(
        description="Dead and cancelled jobs deleted before the end of their retention, because of a limit. Null for queues."
    )
    forgotten_results_total: int | None = Field(
        description="Completed jobs deleted before the end of their retention, because of a limit. Null for queues."
    )
    missing_total: int | None = Field(
        description="Scheduled, queued or running jobs whose data another program, or an eviction, had deleted. Null for queues."
    )
    unserved_jobs: int = Field(
        description="Queued jobs of queues that no worker of the last minute and no pool with an invoker serves; 0 while a live worker registers without queues."
    )
    unserved_queues: int = Field(description="Number of these queues.")
    unserved_example: str | None = Field(description="The one with most jobs.")
    workers: int | None = Field(
        description="Workers with a heartbeat in the last minute, whatever queues they serve. Null for a token that is limited to queues."
    )
    maintenance_age_seconds: float | None = Field(
        description="Seconds since the last maintenance; null before the first."
    )
    maintenance_by: str | None = Field(
        description="Which worker or tick did the last maintenance; null before the first, and for a token that is limited to queues."
    )
    queues_left_out: int = Field(
        description="Queues missing in queued, ready, backlog and the oldest: only the thousand busiest are read."
    )


class Health(ResponseModel):
    """Health of the process: `ok` by `/healthz`; `ready` by `/readyz`, if Redis answers, too."""

    status: str


class Identity(ResponseModel):
    """The token of the request: its name, roles and queues."""

    name: str = Field(description="The token's name; `anyone` on a server without tokens.")
    roles: list[Literal["admin", "metrics", "payloads", "read", "submit", "tick", "work"]]
    queues: list[str] | None = Field(
        description="The queues and patterns that it is limited to; null for all queues."
    )
    payloads: bool = Field(
        description="Whether it sees payloads, results and checkpoints, which are null otherwise."
    )


class Links(ResponseModel):
    """Main paths of the API, by name."""

    name: str
    version: str = Field(description="Version of the API.")
    links: dict[str, str]


class InvalidValue(ResponseModel):
    """One invalid value of a request, with its place: `pointer`, `parameter` or `header`."""

    detail: str
    pointer: str | None = Field(
        None,
        description="JSON Pointer to the value in the body, as a URI fragment (RFC 6901); of a CloudEvent, in its structured "
        "form.",
    )
    parameter: str | None = Field(None, description="Name of the parameter of the query or the path.")
    header: str | None = Field(None, description="Name of the header.")


class ProblemDocument(ResponseModel):
    """The body of every error response: a problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[InvalidValue] | None = None
