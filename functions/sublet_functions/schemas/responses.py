"""What comes back over HTTP. Handlers on the hot path make plain dictionaries of these shapes, and a test holds them to it."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sublet.model import Job, Queue, WorkerInfo
from sublet.operations.pool import Pool


class Answer(BaseModel):
    """What comes back."""

    model_config = ConfigDict(frozen=True)


class Made(Answer):
    """The job."""

    id: str


class MadeItem(Answer):
    """What became of one job of a batch: 201 new, 200 there already, or why not."""

    id: str
    status: int
    type: str | None = None
    detail: str | None = None


class MadeBatch(Answer):
    """What became of each, in their order."""

    jobs: list[MadeItem]


class Leased(Answer):
    """A job under a lease."""

    id: str
    task: str
    queue: str
    payload: Any
    attempt: int
    token: str = Field(description="The proof of the lease. Whoever knows it may end the attempt.")
    lease_expires_at: datetime
    timeout: float | None = Field(description="Seconds that the attempt may take; null for no limit.")
    recovered: str = Field(
        description="How the attempt before this one ended, as a code; empty on the first."
    )
    trace: str | None = None
    occurrence: datetime | None = Field(None, description="The occurrence that a schedule made the job for.")
    checkpoint: Any = Field(None, description="What an earlier attempt has left.")


class LeasedBatch(Answer):
    """The jobs that were taken."""

    jobs: list[Leased]


class Extended(Answer):
    """The lease goes on."""

    id: str
    lease_expires_at: datetime | None = Field(
        description="null when a cancel was asked for: stop, and fail with code cancelled."
    )
    cancel_requested: bool


class Moved(Answer):
    """What became of the job."""

    id: str
    state: str
    due_at: datetime | None = None


class Item(Answer):
    """One line of a batch's answer: what the single route would have said, with its status."""

    id: str
    status: int
    state: str | None = None
    due_at: datetime | None = None
    lease_expires_at: datetime | None = None
    cancel_requested: bool | None = None
    type: str | None = None
    detail: str | None = None


class Items(Answer):
    """What became of each, in their order."""

    jobs: list[Item]


class JobsPage(Answer):
    """Some jobs; a page may be short, even empty, and still have a cursor."""

    jobs: list[Job]
    cursor: str | None


class QueuesPage(Answer):
    """Some queues."""

    queues: list[Queue]
    cursor: str | None


class Workers(Answer):
    """The workers on the register, the latest heard of first."""

    workers: list[WorkerInfo]


class Enlisted(Answer):
    """Whether the worker is to finish and go."""

    drain: bool


class Retired(Answer):
    """Whether the worker may go: it counts no more from this moment, and must take nothing more."""

    leave: bool


class Reconciled(Answer):
    """How many leases were ended."""

    ended: int


class Pools(Answer):
    """All pools, by name, and the sum behind each one's number of workers."""

    pools: list[Pool]


class Ticked(Answer):
    """What the rounds of a tick did."""

    reaped: int
    promoted: int
    pruned: int
    fired: int
    summoned: int
    unreached: int
    rounds: int


class Health(Answer):
    """How it is."""

    status: str


class Links(Answer):
    """Where things are."""

    name: str
    links: dict[str, str]


class Fault(Answer):
    """One thing that is wrong with a request, and where."""

    loc: list[str | int]
    msg: str
    type: str


class ProblemDocument(Answer):
    """Why not (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] | None = None
