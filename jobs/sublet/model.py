"""The data model: a job, its states, and the requests and replies of the protocol.

             submit(delay)          submit
                  │                    │
                  ▼       due          ▼        claim
              scheduled ──────────▶ queued ──────────────▶ running ──▶ completed
                  ▲    promote         ▲  │                 │ │ │
                  │                    │  │    lease ended, │ │ │
                  │                    └──│──── released ───┘ │ └────▶ dead       tries run out, or Discard
                  └───────────────────────│── failed, backoff ┘         │
                                          │ cancel                      │ retry: queued again
                                          └──────────▶ cancelled ◀──────┘  (from cancelled too)

Types of the hot path (Submission, Lease, the endings) are named tuples; types that people read (Job) are frozen pydantic
models. Moments are aware datetimes, durations are seconds, unless a name says `_ms`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict


class State(StrEnum):
    """The state of a job. Each state has one structure in Redis, and a job is in exactly one."""

    SCHEDULED = "scheduled"
    """Waits for a delay, or for the backoff after a failure. Maintenance moves it to `queued` when due; so does `promote`."""
    QUEUED = "queued"
    """Waits for a worker. `claim` moves it to `running`."""
    RUNNING = "running"
    """Is under a lease. `complete`, `fail` or `release` by the holder of the lease ends this state; so does the lease's end."""
    COMPLETED = "completed"
    """Has a result, accepted once. `prune` deletes it after its retention."""
    DEAD = "dead"
    """Has no tries left, or was discarded. `retry` queues it again; `prune` deletes it after 14 days."""
    CANCELLED = "cancelled"
    """Was cancelled. `retry` queues it again; `prune` deletes it after 14 days."""


FINISHED = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})
"""The final states: only an operator's `retry` ends them."""


class Submission(NamedTuple):
    """A job to submit. `rules` are the words that differ from the defaults, as the protocol spells them."""

    id: str
    queue: str
    task: str
    rules: str
    payload: bytes
    durability: str = ""
    """The durability that its submit waits for; empty for that of the settings. It is not stored."""


class Submitted(NamedTuple):
    """The answer to a submission: the job's id, and whether it was created now or existed already (same id or key)."""

    id: str
    created: bool


class Lease(NamedTuple):
    """The right to run one attempt of a job, until `expires_ms` by Redis's clock unless a heartbeat extends it."""

    id: str
    token: str
    """The proof of the lease. Never log it: it allows anybody to settle the job."""
    attempt: int
    """The number of the attempt, from 1; it never decreases."""
    expires_ms: int
    queue: str
    task: str
    timeout_ms: int | None
    """ms that the attempt may take; None for no limit."""
    payload: bytes
    recovered: str
    """The code with which the attempt before ended: `lease_expired`, `released`, …; empty on the first."""
    trace: str = ""
    """The submitter's `traceparent`, if it had one (W3C Trace Context)."""
    checkpoint: bytes = b""
    """The checkpoint of an earlier attempt (JSON); empty if there is none."""
    occurrence_ms: int | None = None
    """The occurrence of the schedule that submitted the job (ms); None for any other job."""

    @property
    def fence(self) -> int:
        """A number that increases with each attempt. Pass it to systems that must reject writes of an earlier attempt."""
        return int(self.token.partition(".")[0])


class Claimed(NamedTuple):
    """The reply to a claim: leases, and the seconds after which this worker should claim again at the latest."""

    leases: list[Lease]
    next_in: float
    come: bool = False
    """Is an occurrence of a schedule due? The claimer fires it."""


class Reaped(NamedTuple):
    """The reply to a reap: the maintenance done in a partition, and what remains to do."""

    ended: int
    """Leases that had expired."""
    queued: int
    """Due jobs that were queued."""
    more: bool
    come: bool
    """`more`: may there be more of these? `come`: is an occurrence of a schedule due?"""
    pools: int
    partitions: int
    """How many pools and partitions the namespace has; 0 partitions if that is not known."""


class Beat(NamedTuple):
    """A heartbeat for one lease; `progress` is opaque bytes, empty to leave it unchanged."""

    lease: Lease
    progress: bytes = b""


class News(StrEnum):
    """A kind of update that a running task sends before its end. The letter is also the kind of its frame on a child's pipe."""

    PROGRESS = "G"
    CHECKPOINT = "K"
    LOG = "L"


class Note(NamedTuple):
    """A running task's checkpoint (JSON) and the last lines of its log; empty to leave them unchanged."""

    lease: Lease
    checkpoint: bytes = b""
    log: bytes = b""


class Card(NamedTuple):
    """The registration that a worker sends when it starts, and with every heartbeat."""

    worker: str
    life: str
    """A word of the worker's choice, a new one at each start."""
    worker_id: str
    """Its exclusive identity (`SUBLET_WORKER_ID`); empty if it has none."""
    about: bytes
    """JSON: host, pid, platform, slots, counters (see `sublet.worker.host_identity`)."""
    pool: str = ""
    """The pool that it works for; empty for none."""
    summons: str = ""
    """The summons that started it; empty if it was not summoned."""


class Completion(NamedTuple):
    """The outcome of an attempt that succeeded, with its result (JSON)."""

    lease: Lease
    result: bytes


class Failure(NamedTuple):
    """The outcome of an attempt that failed. With `again` the job is tried again while it has tries left."""

    lease: Lease
    code: str
    message: str = ""
    detail: str = ""
    again: bool = True


class Release(NamedTuple):
    """The outcome of an attempt that gives the job back unfinished, for `delay` seconds. The try is not used up."""

    lease: Lease
    delay: float = 0
    reason: str = ""


Ending = Completion | Failure | Release
"""The outcomes of an attempt; `settle` sends any mix of them."""


class Standing(NamedTuple):
    """The reply for a watched job: its state (None if it does not exist), its result, and its last attempt as stored."""

    state: State | None
    result: bytes
    story: str


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Attempt(_Frozen):
    """One attempt of a job: who claimed it, when, and how it ended."""

    number: int
    worker: str
    claimed_at: datetime
    ended_at: datetime
    code: str
    """`completed`, the failure's code, or one of ours: lease_expired timed_out crashed cancelled released unknown_task."""
    message: str = ""
    detail: str = ""
    log: tuple[str, ...] = ()
    """The last lines that the task logged, each with the seconds since its start. Kept for the last five attempts."""


class Job(_Frozen):
    """A job in its present state, with its attempts."""

    id: str
    task: str
    queue: str
    state: State
    priority: int = 0
    key: str | None = None
    payload: Any = None
    """The task's arguments by name; None once the job is completed: they are deleted then."""
    submitted_at: datetime
    due_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    max_attempts: int = 3
    tries_left: int | None = None
    worker: str | None = None
    claimed_at: datetime | None = None
    heartbeat_at: datetime | None = None
    lease_expires_at: datetime | None = None
    progress: Any = None
    checkpoint: Any = None
    """What an attempt stored for later ones; deleted when the job is completed."""
    log: tuple[str, ...] = ()
    """The last lines that the running attempt logged."""
    trace: str | None = None
    """The submitter's `traceparent`."""
    schedule: str | None = None
    """The schedule that submitted it."""
    run_at: datetime | None = None
    """The moment that it was submitted for: the schedule's occurrence, or the submitter's `at`."""
    cancel_requested_at: datetime | None = None
    attempts: tuple[Attempt, ...] = ()
    result: Any = None
    revision: int = 0
    """Attempts plus operators' verbs so far. `cancel`, `retry` and `promote` name the revision that the operator saw."""


class Queue(_Frozen):
    """A queue: its jobs, its limits, and whether it is paused."""

    name: str
    queued: int
    jobs: int = 0
    """Unfinished jobs: scheduled, queued and running ones."""
    bytes: int = 0
    """Bytes of their payloads."""
    limits: dict[str, int] = {}
    """The limits of `jobs` and `bytes` that `submit` enforces; a missing name has no limit."""
    paused_at: datetime | None = None
    """When the queue was paused; None if it is not paused."""
    revision: int = 0
    """Operators' verbs on this queue so far. `pause`, `resume` and `configure` name the revision that the operator saw."""


class WorkerInfo(_Frozen):
    """A registered worker: its description, its last heartbeat, and the jobs that it holds."""

    name: str
    life: str
    worker_id: str = ""
    enlisted_at: datetime
    seen_at: datetime
    draining: bool = False
    """Whether it was asked to finish its jobs and exit."""
    about: dict[str, Any] = {}
    """Its description: host, pid, platform, slots, completed, …; workers in other languages may send anything."""
    jobs: tuple[str, ...] = ()
    """The ids of the jobs that it runs, at most a hundred."""
    leases: int = 0
    """How many leases it holds."""


class Page(_Frozen):
    """A page of jobs. While `cursor` is set there is a next page, even if this one is short or empty."""

    jobs: tuple[Job, ...]
    cursor: str | None = None


class Stats(_Frozen):
    """Statistics of a partition: jobs by state now, and totals since the namespace was created."""

    states: dict[State, int]
    totals: dict[str, int]
    upkeep_at: datetime | None = None
    upkeep_by: str | None = None
