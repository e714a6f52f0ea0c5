"""What a job is, and the words of its life.

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

What travels on the hot path (Submission, Lease, the endings) are named tuples; what a person reads (Job) is a frozen
pydantic model. Moments are aware datetimes, durations are seconds, unless a name says `_ms`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict


class State(StrEnum):
    """Where a job is. A state is one structure in Redis, and a job is in exactly one."""

    SCHEDULED = "scheduled"
    """Waits for a moment: a delay, or the backoff after a failure. Upkeep moves it to `queued` when due; so does `promote`."""
    QUEUED = "queued"
    """Waits for a worker. `claim` moves it to `running`."""
    RUNNING = "running"
    """Is under a lease. `complete`, `fail` and `release` by the lease's holder, or the end of the lease, move it on."""
    COMPLETED = "completed"
    """Has a result, accepted once. `prune` forgets it after its retention."""
    DEAD = "dead"
    """Has no tries left, or was discarded. `retry` revives it; `prune` forgets it after 14 days."""
    CANCELLED = "cancelled"
    """Was called off. `retry` revives it; `prune` forgets it after 14 days."""


FINISHED = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})
"""The states in which nothing more happens by itself."""


class Submission(NamedTuple):
    """A job to be: what `submit` takes. `rules` are the words that differ from the defaults, as the protocol spells them."""

    id: str
    queue: str
    task: str
    rules: str
    payload: bytes
    durability: str = ""
    """What its submit waits for (`Durability`); empty for what the settings say. Redis keeps nothing of it."""


class Submitted(NamedTuple):
    """What became of a submission: the job's id, and whether it is new or was there already (same id or key)."""

    id: str
    created: bool


class Lease(NamedTuple):
    """The right to run one attempt of a job, until `expires_ms` by Redis's clock unless a heartbeat extends it."""

    id: str
    token: str
    """The proof. Never log it: whoever knows it may settle the job."""
    attempt: int
    """Which attempt this is, from 1; it never shrinks."""
    expires_ms: int
    queue: str
    task: str
    timeout_ms: int | None
    """ms that the attempt may take; None if its submitter asked for no limit."""
    payload: bytes
    recovered: str
    """How the attempt before this one ended, as a code: `lease_expired`, `released`, … ; empty on the first."""
    trace: str = ""
    """The submitter's `traceparent`, if it had one (W3C Trace Context)."""
    checkpoint: bytes = b""
    """What an earlier attempt has left for this one (JSON); empty if none did."""
    occurrence_ms: int | None = None
    """The occurrence that a schedule made the job for; None for any other job."""

    @property
    def fence(self) -> int:
        """A number that only grows from attempt to attempt: pass it on to whatever must refuse a late writer."""
        return int(self.token.partition(".")[0])


class Claimed(NamedTuple):
    """The leases that a claim was given, and the seconds until this worker should claim again, come what may."""

    leases: list[Lease]
    next_in: float
    come: bool = False
    """Has the occurrence of some schedule come? Whoever claims sees to it."""


class Reaped(NamedTuple):
    """What time had decided in a partition, and what else is there to be seen to."""

    ended: int
    """Leases that ended."""
    queued: int
    """Jobs that fell due."""
    more: bool
    come: bool
    """May there be more of these? And has the occurrence of some schedule come?"""
    pools: int
    partitions: int
    """How many of either the namespace has; 0 partitions where that is not known."""


class Beat(NamedTuple):
    """A sign of life for one lease; `progress` is opaque bytes, empty when there is no news."""

    lease: Lease
    progress: bytes = b""


class News(StrEnum):
    """What a running task may send home before its end; the letter is also the kind of its frame on a child's pipe."""

    PROGRESS = "G"
    CHECKPOINT = "K"
    LOG = "L"


class Note(NamedTuple):
    """What a running task leaves with its job: a checkpoint (JSON) and the last lines of its log; empty for no news."""

    lease: Lease
    checkpoint: bytes = b""
    log: bytes = b""


class Card(NamedTuple):
    """What a worker says of itself when it enlists, and with every sign of life."""

    worker: str
    life: str
    """A word of its own choice, another one each time it starts."""
    worker_id: str
    """Its exclusive identity (`SUBLET_WORKER_ID`); empty if it has none."""
    about: bytes
    """JSON: host, pid, platform, slots, what it has done (see `sublet.worker.host_identity`)."""
    pool: str = ""
    """The pool whose work it does; empty for none."""
    summons: str = ""
    """What it was summoned by; empty if it came by itself."""


class Completion(NamedTuple):
    """The ending of an attempt that has a result (JSON)."""

    lease: Lease
    result: bytes


class Failure(NamedTuple):
    """The ending of an attempt that came to nothing. With `again` the job is tried again while it has tries left."""

    lease: Lease
    code: str
    message: str = ""
    detail: str = ""
    again: bool = True


class Release(NamedTuple):
    """The ending of an attempt that gives the job back, and the try with it, after `delay` seconds."""

    lease: Lease
    delay: float = 0
    reason: str = ""


Ending = Completion | Failure | Release
"""How a worker may end an attempt; `settle` sends any mix of them."""


class Standing(NamedTuple):
    """Where a watched job stands: its state (None if unknown), its result, and how its last attempt ended."""

    state: State | None
    result: bytes
    story: str


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Attempt(_Frozen):
    """One line of a job's story: a claim and how it ended."""

    number: int
    worker: str
    claimed_at: datetime
    ended_at: datetime
    code: str
    """`completed`, the failure's code, or one of ours: lease_expired timed_out crashed cancelled released unknown_task."""
    message: str = ""
    detail: str = ""
    log: tuple[str, ...] = ()
    """The last lines that its task logged, each with the seconds since its start; of the last five attempts."""


class Job(_Frozen):
    """One job as it stands, with its story."""

    id: str
    task: str
    queue: str
    state: State
    priority: int = 0
    key: str | None = None
    payload: Any = None
    """The task's arguments by name; None once the job is completed, when they are let go."""
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
    """What an attempt has left for those to come; gone when the job is completed."""
    log: tuple[str, ...] = ()
    """The last lines that the running attempt has logged."""
    trace: str | None = None
    """The submitter's `traceparent`."""
    schedule: str | None = None
    """The schedule that made it."""
    run_at: datetime | None = None
    """The moment that it was made for: the schedule's occurrence, or what its submitter asked for."""
    cancel_requested_at: datetime | None = None
    attempts: tuple[Attempt, ...] = ()
    result: Any = None
    revision: int = 0
    """Attempts plus operator's verbs so far: `cancel`, `retry` and `promote` name the revision they saw."""


class Queue(_Frozen):
    """One queue: what is in it, what it may hold, and whether its jobs are handed out."""

    name: str
    queued: int
    jobs: int = 0
    """Jobs that wait or run: scheduled, queued and running ones."""
    bytes: int = 0
    """Bytes of their payloads."""
    limits: dict[str, int] = {}
    """The most `jobs` and `bytes` that `submit` lets it come to; what is not here has no limit."""
    paused_at: datetime | None = None
    """Since when its jobs are not handed out; None while they are."""
    revision: int = 0
    """Operator's verbs on this queue so far: `pause`, `resume` and `configure` name the revision they saw."""


class WorkerInfo(_Frozen):
    """One worker on the register: what it said of itself, when it was last heard of, and the jobs that it holds."""

    name: str
    life: str
    worker_id: str = ""
    enlisted_at: datetime
    seen_at: datetime
    draining: bool = False
    """Asked to finish and go."""
    about: dict[str, Any] = {}
    """What it says of itself: host, pid, platform, slots, completed, … ; anything, for a worker in another language."""
    jobs: tuple[str, ...] = ()
    """The ids of the jobs that it runs, at most a hundred of them."""
    leases: int = 0
    """How many leases it holds."""


class Page(_Frozen):
    """Some jobs of a list, and where to go on; a page may be short, even empty, and still have a `cursor`."""

    jobs: tuple[Job, ...]
    cursor: str | None = None


class Stats(_Frozen):
    """A partition in numbers: jobs by state now, and what has happened since the namespace was made."""

    states: dict[State, int]
    totals: dict[str, int]
    upkeep_at: datetime | None = None
    upkeep_by: str | None = None
