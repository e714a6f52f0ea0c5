"""The data model: a job, its states (drawn in README.md), and the requests and replies of the protocol.

Moments are aware datetimes and durations seconds, but names that end in `_ms` are milliseconds.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema


def format_moment(moment: datetime) -> str:
    """Format a moment by RFC 3339, with milliseconds: the form of moments in JSON."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp = Annotated[
    datetime,
    PlainSerializer(format_moment, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
InSeconds = Annotated[float, Field(description="Seconds.")]


class State(StrEnum):
    """A job's state; a job is always in exactly one."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    """The job has a result. It is deleted after its retention, or when too many are kept."""
    DEAD = "dead"
    """The job is not tried again. It is deleted after 14 days (or its longer retention), or when too many are kept."""
    CANCELLED = "cancelled"
    """It is deleted as a dead job is."""


FINISHED = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})


class Submission(NamedTuple):
    """A job to submit. `rules` has the options that differ from the defaults, as text: `priority=5 tries=1`."""

    id: str
    queue: str
    task: str
    rules: str
    payload: bytes
    durability: str = ""
    """The confirmation that the submit waits for: `none`, `replicated` or `fsync`; empty: that of the settings."""


class Submitted(NamedTuple):
    """The answer to a submit: the id of the new job (`created`), or of the earlier one with its id or key."""

    id: str
    created: bool
    replaced: bool = False
    """Whether that earlier job, which was waiting, got this submit's arguments."""


class Lease(NamedTuple):
    """The right to run one attempt of a job until `expires_ms` (by Redis's clock); heartbeats extend it."""

    id: str
    token: str
    """A secret: its holder may report the attempt's outcome. Never log it."""
    attempt: int
    expires_ms: int
    queue: str
    task: str
    timeout_ms: int | None
    payload: bytes
    recovered: str
    """How the previous attempt ended, as a code: `lease_expired`, `released`, …; empty for the first."""
    trace: str = ""
    """The W3C header `traceparent` of the submitter; empty without one."""
    checkpoint: bytes = b""
    """The JSON that an earlier attempt stored as checkpoint; empty without one."""
    occurrence_ms: int | None = None
    max_attempts: int = 3
    tries_left: int = 0
    """Tries that are left if this attempt fails."""
    tags: tuple[str, ...] = ()
    lost: bool = False
    """True if the previous attempt's lease ended before its outcome arrived."""
    stall_ms: int | None = None
    """The attempt fails after so many ms without progress, checkpoint, step or chunk; None: no limit."""

    @property
    def fence(self) -> int:
        """A number that grows with each claim, so that later attempts can be told from earlier ones."""
        return int(self.token.partition(".")[0])


class LostJob(NamedTuple):
    """A job that became dead because the lease of its last try expired."""

    id: str
    attempt: int
    queue: str
    task: str
    code: str = "lease_expired"
    """`lease_expired`; or `timed_out` if its worker sent heartbeats beyond the timeout, and no outcome."""


class Claimed(NamedTuple):
    """The reply to a claim: the leases, and after how many seconds this worker should claim again."""

    leases: list[Lease]
    next_in: float
    come: bool = False
    """Whether a schedule is due: the claiming worker then fires it."""
    dead: tuple[LostJob, ...] = ()
    """Jobs that this claim found with expired leases, and made dead."""


class Reaped(NamedTuple):
    """How many expired leases a reap `ended`, and due jobs it `queued`; whether `more` may remain; whether a
    schedule is due (`come`); how many pools there are."""

    ended: int
    queued: int
    more: bool
    come: bool
    pools: int
    partitions: int
    """Partitions of the namespace; 0 if unknown."""


class Beat(NamedTuple):
    """A heartbeat for one lease. `progress` is JSON; if it is empty, the stored progress stays."""

    lease: Lease
    progress: bytes = b""


class News(StrEnum):
    """Kinds of reports of a running task. Each value is its letter on the pipe from a child process."""

    PROGRESS = "G"
    CHECKPOINT = "K"
    LOG = "L"
    DETAIL = "D"
    """Text to keep as the failure's detail if the attempt is ended early."""
    WAITING = "W"
    """1 when the task begins to wait for another job's result, 0 when the wait ends."""
    COST = "C"
    FOLLOWING = "T"
    """Some of the jobs to store when the job is completed."""


class Note(NamedTuple):
    """A checkpoint (JSON), the last log lines and the cost (digits) of a running attempt. An empty value leaves the stored one."""

    lease: Lease
    checkpoint: bytes = b""
    log: bytes = b""
    cost: bytes = b""


class Card(NamedTuple):
    """A worker's registration, sent at its start and about every 5 s."""

    worker: str
    life: str
    """A random name of this run of the worker."""
    worker_id: str
    about: bytes
    """A JSON object that describes the worker: host, pid, platform, slots, counters."""
    pool: str = ""
    summons: str = ""
    owner: str = ""
    """The name of the worker's API token, if it uses the HTTP API; else empty."""


class Following(NamedTuple):
    """Jobs to store when a job is completed, as a workflow; `callback` waits for them, with this `on_failure`."""

    workflow: str
    jobs: tuple[Submission, ...]
    callback: Submission | None = None
    on_failure: Literal["cancel", "run", "hold"] = "cancel"


class Completion(NamedTuple):
    """An attempt that succeeded, with its result (JSON), and the jobs that follow, if any."""

    lease: Lease
    result: bytes
    following: Following | None = None


class Failure(NamedTuple):
    """An attempt that failed. If `again`, the job is tried again while it has tries; else it is dead."""

    lease: Lease
    code: str
    message: str = ""
    detail: str = ""
    again: bool = True


class Release(NamedTuple):
    """An attempt that gives its job back: the job usually runs again, after `delay` seconds
    (with `unknown_task` 1 to 60), and usually has used no try."""

    lease: Lease
    delay: float = 0
    reason: str = ""
    code: Literal["released", "unknown_task", "abandoned"] = "released"
    """`unknown_task`: the worker lacks the task, or the task does not take the arguments; `abandoned`: the claim's caller has left."""


class Suspension(NamedTuple):
    """An attempt whose task waits: for `seconds`, a signal (at most `seconds`, if not None) or a called job. No try is used."""

    lease: Lease
    kind: Literal["sleep", "signal", "call"]
    name: str
    seconds: float | None = None


Ending = Completion | Failure | Release | Suspension


class Description(NamedTuple):
    """A task's entry in the catalogue of published tasks: `text` is JSON, `digest` is its hash."""

    task: str
    digest: str
    text: bytes


class Standing(NamedTuple):
    """A job's state (None: no such job), result (JSON or empty) and `story`: of an ended job, its last
    attempt or, if it never ran, error; else empty."""

    state: State | None
    result: bytes
    story: str


class Frozen(BaseModel):
    """Base of the immutable models that reads return."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True, defer_build=True)


class Attempt(Frozen):
    """One ended attempt of a job."""

    number: int
    worker: str
    claimed_at: Timestamp
    ended_at: Timestamp
    code: str
    """How it ended: `completed`, `cancelled`, `released`, `suspended`, or another code (timed_out, an exception's name, …)."""
    message: str = ""
    detail: str = ""
    log: tuple[str, ...] = ()
    """The attempt's last log lines; each begins with the seconds since its start. Kept for a job's last five attempts."""


class LastError(Frozen):
    """How the last attempt that failed, was lost or released as `unknown_task` ended, or why a wait for jobs did."""

    code: str
    """A failure's code (an exception's name), lease_expired, timed_out, crashed, upstream, unsealed, …."""
    message: str = ""
    """The first 200 bytes of the error's message."""


class JobSummary(Frozen):
    """A job in lists: no result, steps, checkpoint, log or attempts. `group` and `workflow` (an id) may be None."""

    id: str
    task: str
    queue: str
    state: State
    priority: int = 0
    key: str | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    cost: int = 1
    """How many tokens of the queue's and the group's rate each start uses."""
    payload: Any = None
    """The job's arguments by name. None once it is completed, unless it has `keep_payload`. None in a list if above 1 KiB."""
    submitted_at: Timestamp
    due_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    attempt: int = 0
    max_attempts: int = 3
    tries_left: int = 3
    """How many tries are left, without that of a running attempt. A retry and a kept step renew all."""
    worker: str | None = None
    claimed_at: Timestamp | None = None
    heartbeat_at: Timestamp | None = None
    lease_expires_at: Timestamp | None = None
    progress: Any = None
    trace: str | None = None
    schedule: str | None = None
    workflow: str | None = None
    replaced: int = 0
    """How often a later submit replaced the job's arguments."""
    replaced_at: Timestamp | None = None
    after: str | None = None
    """Id of the job with the same key for whose end this job waits, or waited; else None."""
    waits_for: str | None = None
    """The limit, or pause of its queue, that holds a queued job back, as text; else None."""
    awaits: str | None = None
    """What a scheduled job waits for: `signal NAME`, `sleep NAME`, `call NAME`, `upstream N` (so many jobs), `retry ID` (of a failed one); else None."""
    run_at: Timestamp | None = None
    """The moment for which a schedule, `run_at`, a debounce or the last reschedule planned the job; else None."""
    cancel_requested_at: Timestamp | None = None
    last_error: LastError | None = None
    """The job's last error; None if it had none, or is completed."""
    result_bytes: int | None = None
    """The result's size in bytes of JSON; None until the job is completed."""
    revision: int = 0
    """Grows with each attempt and each operator's command. A command that names another revision is refused."""


class KeptStep(Frozen):
    """A kept step of a job, without its value."""

    name: str
    kind: str
    """`step`, `signal`, `sleep`, `timeout` (of a signal), `call` (unfinished) or `called` (ended)."""
    kept_at: Timestamp
    bytes: int


class Job(JobSummary):
    """A job with its result, checkpoint, log and attempts, and its steps without their values."""

    steps: tuple[KeptStep, ...] = ()
    """The job's kept steps, oldest first. Completion deletes them."""
    checkpoint: Any = None
    """The JSON value that an attempt stored for later ones. Completion deletes it."""
    log: tuple[str, ...] = ()
    """Last log lines of the running attempt; empty without one."""
    attempts: tuple[Attempt, ...] = ()
    """The job's ended attempts: the first five and the last five."""
    result: Any = None


class Queue(Frozen):
    """A queue: how many jobs it has, the `bytes` of unfinished ones, its limits and settings."""

    name: str
    queued: int
    jobs: int = 0
    """Unfinished jobs: scheduled, queued and running."""
    bytes: int = 0
    limits: dict[str, int | float] = {}
    """The set limits by their names in `Client.configure` (periods in seconds); of `*`: the namespace's."""
    on_dead: str | None = None
    """TASK or QUEUE/TASK, of which a job is submitted for each dead job of the queue; None: nothing is."""
    paused_at: Timestamp | None = None
    revision: int = 0
    """Grows with each operator's command on the queue."""
    exists: bool = True
    """Whether Redis knows the queue: it had a job or a setting, and is not forgotten."""


class WorkerInfo(Frozen):
    """A registered worker. One that has died stays registered for up to a day: see `seen_at`."""

    name: str
    life: str
    worker_id: str = ""
    enlisted_at: Timestamp
    seen_at: Timestamp
    draining: bool = False
    about: dict[str, Any] = {}
    """What the worker reports of itself: host, pid, slots, …. Other implementations may send anything."""
    last_job_at: Timestamp | None = None
    """When the worker's last job ended, by its last renewal; None if none has ended."""
    jobs: tuple[str, ...] = ()
    """Ids of the jobs that it runs, at most 100; `leases` counts all."""
    leases: int = 0


class Page(Frozen):
    """Some jobs of a list. If `cursor` is set, list again with it for more, even if this page is empty."""

    jobs: tuple[JobSummary, ...]
    cursor: str | None = None


class Stats(Frozen):
    """The number of a partition's jobs by state, and totals of events since the partition was created."""

    states: dict[State, int]
    totals: dict[str, int]
    maintenance_at: Timestamp | None = None
    maintenance_by: str | None = None
