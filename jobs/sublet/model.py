"""The data model: a job, its states (drawn in README.md), and the requests and replies of the protocol.

Moments are aware datetimes and durations seconds, except names in `_ms`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema


def format_moment(moment: datetime) -> str:
    """Format a moment by RFC 3339, with milliseconds: the form of all moments in JSON."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp = Annotated[
    datetime,
    PlainSerializer(format_moment, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
InSeconds = Annotated[float, Field(description="Seconds.")]


class State(StrEnum):
    """A job's state. Each state has one structure in Redis (queued: one per queue); a job is in exactly one."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    """Has a result. `prune` deletes it after its retention, or above the number kept."""
    DEAD = "dead"
    """Not tried again. `prune` deletes it after 14 days, its retention if longer, or above the number kept."""
    CANCELLED = "cancelled"
    """Ended by a cancel. `prune` deletes it as a dead one."""


FINISHED = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})


class Submission(NamedTuple):
    """A job to submit. `rules`: the options that differ from the defaults, as words: `priority=5 tries=1`."""

    id: str
    queue: str
    task: str
    rules: str
    payload: bytes
    durability: str = ""
    """Durability that the submit waits for; empty: the settings' default. Not stored."""


class Submitted(NamedTuple):
    """A job's id, and whether this submit created it. If not, `id` is the job that had the id or key already."""

    id: str
    created: bool


class Lease(NamedTuple):
    """The right to run one attempt until `expires_ms` (Redis's clock), or longer by heartbeats."""

    id: str
    token: str
    """Allows its bearer to settle the job. Never log it."""
    attempt: int
    expires_ms: int
    queue: str
    task: str
    timeout_ms: int | None
    payload: bytes
    recovered: str
    """Code of the previous attempt's end: `lease_expired`, `released`, …; empty on the first."""
    trace: str = ""
    """The submitter's `traceparent`."""
    checkpoint: bytes = b""
    """JSON that an earlier attempt stored."""
    occurrence_ms: int | None = None
    max_attempts: int = 3
    tries_left: int = 0
    """After this attempt."""
    tags: tuple[str, ...] = ()
    lost: bool = False
    """Whether the previous attempt's lease ended without an outcome."""
    stall_ms: int | None = None
    """Most ms without a report of progress or a checkpoint."""

    @property
    def fence(self) -> int:
        """Increases with each claim (see `Context.fence`)."""
        return int(self.token.partition(".")[0])


class LostJob(NamedTuple):
    """A job that is dead because its lease expired in its last attempt."""

    id: str
    attempt: int
    queue: str
    task: str
    code: str = "lease_expired"
    """Or `timed_out`: its worker sent heartbeats beyond the timeout, and no outcome."""


class Claimed(NamedTuple):
    """The reply to a claim: leases, and the seconds until this worker should claim again."""

    leases: list[Lease]
    next_in: float
    come: bool = False
    """Whether an occurrence of a schedule is due; the claimer fires it."""
    dead: tuple[LostJob, ...] = ()
    """Jobs that became dead in this call, by leases that had expired."""


class Reaped(NamedTuple):
    """The reply to a reap: leases `ended`, due jobs `queued`, and whether `more` remain."""

    ended: int
    queued: int
    more: bool
    come: bool
    pools: int
    """Number of pools."""
    partitions: int
    """Partitions of the namespace; 0 if unknown."""


class Beat(NamedTuple):
    """A heartbeat for one lease; empty `progress` (JSON) leaves the stored one."""

    lease: Lease
    progress: bytes = b""


class News(StrEnum):
    """Reports of a running task. The letter is the kind of the frame on a child's pipe."""

    PROGRESS = "G"
    CHECKPOINT = "K"
    LOG = "L"
    DETAIL = "D"
    """Detail of the attempt if it is ended early; it is sent with the outcome."""
    WAITING = "W"
    """Whether the task waits for the result of another job: 1 or 0."""


class Note(NamedTuple):
    """A running attempt's checkpoint (JSON) and last log lines, to store. Empty values leave the stored ones."""

    lease: Lease
    checkpoint: bytes = b""
    log: bytes = b""


class Card(NamedTuple):
    """A worker's registration, as sent at its start and about every 5 s."""

    worker: str
    life: str
    """Random name of this run."""
    worker_id: str
    about: bytes
    """JSON: host, pid, platform, slots, counters (see `sublet.worker.host_identity`)."""
    pool: str = ""
    summons: str = ""
    owner: str = ""
    """Name of its token, over HTTP."""


class Completion(NamedTuple):
    """An attempt that succeeded, with its result (JSON)."""

    lease: Lease
    result: bytes


class Failure(NamedTuple):
    """An attempt that failed. With `again` the job is tried again while tries are left."""

    lease: Lease
    code: str
    message: str = ""
    detail: str = ""
    again: bool = True


class Release(NamedTuple):
    """An attempt that gives its job back, to run again after `delay` seconds, without using a try."""

    lease: Lease
    delay: float = 0
    reason: str = ""
    code: Literal["released", "unknown_task", "abandoned"] = "released"
    """`unknown_task`: this worker lacks the task, or the task does not take the arguments. `abandoned`: the
    claim's caller left, and may have repeated the claim elsewhere.
    """


Ending = Completion | Failure | Release


class Description(NamedTuple):
    """A task as it is published: `text` is JSON, and `digest` identifies it."""

    task: str
    digest: str
    text: bytes


class Standing(NamedTuple):
    """A watched job's state (None if missing); if it has ended, also its result (JSON) and last attempt, as
    stored.
    """

    state: State | None
    result: bytes
    story: str


class Frozen(BaseModel):
    """What a read returns. Its validator is made at the first use."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True, defer_build=True)


class Attempt(Frozen):
    """One ended attempt of a job."""

    number: int
    worker: str
    claimed_at: Timestamp
    ended_at: Timestamp
    code: str
    """`completed`, the failure's code, or lease_expired, timed_out, crashed, cancelled, released,
    unknown_task.
    """
    message: str = ""
    detail: str = ""
    log: tuple[str, ...] = ()
    """Last log lines, each with seconds since the start; kept for the last five attempts."""


class LastError(Frozen):
    """How the last attempt that did not succeed ended; released attempts do not count, unless the job is dead."""

    code: str
    """As in Attempt."""
    message: str = ""
    """Up to 200 bytes of it."""


class JobSummary(Frozen):
    """A job as a list shows it: without result, checkpoint, log and attempts."""

    id: str
    task: str
    queue: str
    state: State
    priority: int = 0
    key: str | None = None
    tags: tuple[str, ...] = ()
    payload: Any = None
    """Arguments by name; None after completion without `keep_payload`, and in lists above 1 KiB."""
    submitted_at: Timestamp
    due_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    attempt: int = 0
    max_attempts: int = 3
    tries_left: int | None = None
    worker: str | None = None
    claimed_at: Timestamp | None = None
    heartbeat_at: Timestamp | None = None
    lease_expires_at: Timestamp | None = None
    progress: Any = None
    trace: str | None = None
    schedule: str | None = None
    run_at: Timestamp | None = None
    """The schedule's occurrence; else the option `run_at`, or the time of the last reschedule."""
    cancel_requested_at: Timestamp | None = None
    last_error: LastError | None = None
    """None before the first error, and after completion."""
    result_bytes: int | None = None
    """Size of the stored result (JSON); None until completion."""
    revision: int = 0
    """Increases with each attempt and operator's command. `cancel`, `retry`, `promote` and `reschedule` send the
    one they read.
    """


class Job(JobSummary):
    """A job as stored."""

    checkpoint: Any = None
    """Stored for later attempts. Completion deletes it."""
    log: tuple[str, ...] = ()
    """Last log lines of the running attempt."""
    attempts: tuple[Attempt, ...] = ()
    """The first five and the last five."""
    result: Any = None


class Queue(Frozen):
    """A queue with its backlog and limits."""

    name: str
    queued: int
    jobs: int = 0
    """Unfinished jobs: scheduled, queued and running."""
    bytes: int = 0
    limits: dict[str, int] = {}
    """Limits of `jobs` and `bytes` for submits; of `*`: of finished jobs kept."""
    on_dead: str | None = None
    """TASK or QUEUE/TASK that reports dead jobs."""
    paused_at: Timestamp | None = None
    revision: int = 0
    """Increases with each operator's command on it."""


class WorkerInfo(Frozen):
    """A registered worker."""

    name: str
    life: str
    worker_id: str = ""
    enlisted_at: Timestamp
    seen_at: Timestamp
    draining: bool = False
    about: dict[str, Any] = {}
    """Host, pid, platform, slots, completed, …; workers in other languages may send anything."""
    last_job_at: datetime | None = None
    """When its last job ended, by `last_job` of `about`: the seconds since then, at its last heartbeat."""
    jobs: tuple[str, ...] = ()
    """Ids of its running jobs, at most 100; `leases` counts all."""
    leases: int = 0


class Page(Frozen):
    """A page of a list of jobs. While `cursor` is set another follows, even if this one is short or empty."""

    jobs: tuple[JobSummary, ...]
    cursor: str | None = None


class Stats(Frozen):
    """A partition's jobs by state now, and totals since its creation."""

    states: dict[State, int]
    totals: dict[str, int]
    maintenance_at: Timestamp | None = None
    maintenance_by: str | None = None
