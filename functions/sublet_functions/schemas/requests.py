"""Request bodies, with their limits, also for the OpenAPI document. Durations are seconds, times are RFC
3339.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sublet.options import TRIES_MAX, Durability
from sublet.protocol.verbs import PUBLISH_MAX
from sublet.store.source import HTTP_QUEUES
from sublet.tasks.catalogue import SUMMARY_MAX
from sublet_functions.schemas.fields import (
    WHOLE,
    AtMost,
    Claimer,
    ClaimId,
    Cost,
    Debounce,
    Delay,
    Group,
    Id,
    Key,
    LeaseTime,
    Moment,
    Name,
    OnConflict,
    OwnId,
    Place,
    Priority,
    QueueEntry,
    Retention,
    Stall,
    Tags,
    Text,
    Timeout,
    Token,
    Tries,
    Wait,
    Window,
)
from sublet_functions.schemas.options_together import OPTIONS_TOGETHER

BATCH_MAX = 1000

_GIVEN: dict[str, Any] = {"not": {"type": "null"}}
_NOT_EMPTY: dict[str, Any] = {"minLength": 1}
_SUMMONS: dict[str, Any] = {"required": ["summons"], "properties": {"summons": _NOT_EMPTY}}
_WITH_POOL: dict[str, Any] = {"required": ["pool"], "properties": {"pool": _NOT_EMPTY}}


class RequestModel(BaseModel):
    """Base of the models of request bodies: unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ExponentialBackoff(RequestModel):
    """Wait `first` seconds before the next attempt, times `factor` for each further one, at most `cap`; a
    random 50 to 100 % of that.
    """

    first: Delay = 1.0
    factor: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 2.0
    cap: Delay = 300.0


AnyBackoff = Annotated[
    Delay | ExponentialBackoff,
    Field(
        description="Seconds before the next attempt, or their growth; a random 50 to 100 % of them is used. Default: 1 s, doubling, at most 300 s."
    ),
]


class NewJob(RequestModel):
    """A job to be stored. Fields that are left out have the task's own values, if the server knows the task (`GET
    /tasks`); else these defaults.
    """

    model_config = ConfigDict(json_schema_extra=OPTIONS_TOGETHER)

    task: Name
    payload: dict[str, Any] = Field({}, description="The task's arguments, by name; at most 256 KiB.")
    queue: Name = "default"
    delay: Delay = Field(0.0, description="Seconds before the first attempt.")
    run_at: Moment | None = Field(None, description="Time of the first attempt, instead of a delay.")
    priority: Priority = 0
    key: Key | None = Field(
        None,
        description="Deduplication key, any text: while a job of the queue with this key is unfinished, a submit returns that "
        "job. Stored as it is if it has 1 to 128 visible ASCII characters and does not begin with `sha256:`; else as `sha256:` "
        "and 64 hex digits, the SHA-256 of its UTF-8.",
    )
    window: Window | None = None
    debounce: Debounce | None = None
    at_most: AtMost | None = None
    on_conflict: OnConflict | None = None
    max_attempts: Tries = 3
    timeout: Timeout = 300.0
    stall: Stall | None = None
    retention: Retention = 86_400.0
    backoff: AnyBackoff = Field(default_factory=ExponentialBackoff)
    tags: Tags = Field(default_factory=list)
    group: Group | None = Field(
        None,
        description="Whose turns and limits in the queue apply, e.g. a tenant's: 1 to 128 visible ASCII characters.",
    )
    cost: Cost = Field(
        1, description="Tokens of the queue's and the group's rate that it takes when it starts."
    )
    keep_payload: bool = Field(False, description="Keep the payload of the job after completion.")
    trace: Annotated[str, Field(pattern=r"^[0-9a-f][0-9a-f-]{1,127}$")] | None = Field(
        None, description="A W3C traceparent."
    )
    durability: Durability | None = Field(
        None,
        description="What the response waits for: Redis alone, its replicas, or its disk; null: the server's setting.",
    )
    id: OwnId | None = Field(
        None,
        description="Your own id: repeating it returns the same job. The server puts the partition's number in front.",
    )


class NewJobBatch(RequestModel):
    """Jobs to be stored, each independently of the others."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=BATCH_MAX)]


class Claim(RequestModel):
    """A claim: which jobs to take, and for how long."""

    queues: list[QueueEntry] = Field(
        ["default"],
        min_length=1,
        max_length=HTTP_QUEUES,
        description="Queues to claim from; the first has precedence. With more than 32, or with a pattern (up to 16: "
        "`tenant-*`, or `*` for all), those that have jobs take turns.",
    )
    strict: bool = Field(
        False,
        description="With patterns or more than 32 queues: serve them in their order, instead of in turns.",
    )
    n: Annotated[int, Field(ge=0, le=100), WHOLE] = Field(
        1, description="Most jobs to claim; 0 does maintenance only."
    )
    lease: LeaseTime = 30.0
    worker: Claimer | None = None
    claim_id: ClaimId | None = None
    wait: Wait = Field(0.0, description="Seconds to wait for the first job.")


class Heartbeat(RequestModel):
    """A heartbeat: extends one lease."""

    token: Token
    lease: LeaseTime = 30.0
    progress: Any = Field(None, description="Progress of the attempt: any JSON, at most 1 KiB.")


class HeartbeatItem(RequestModel):
    """A heartbeat of one of several leases."""

    id: Id
    token: Token
    progress: Any = None


class HeartbeatBatch(RequestModel):
    """Heartbeats of several leases."""

    lease: LeaseTime = 30.0
    jobs: Annotated[list[HeartbeatItem], Field(min_length=1, max_length=BATCH_MAX)]


class Completion(RequestModel):
    """An attempt's result, for `POST /jobs/{id}/complete`."""

    token: Token
    result: Any = Field(None, description="Any JSON, at most 256 KiB.")


class CompletionItem(Completion):
    """The result of one of several attempts."""

    id: Id


class CompletionBatch(RequestModel):
    """Results of several attempts."""

    jobs: Annotated[list[CompletionItem], Field(min_length=1, max_length=BATCH_MAX)]


class Failure(RequestModel):
    """The failure of an attempt."""

    token: Token
    code: Name = Field("failed", description="Machine-readable cause.")
    message: Text = ""
    detail: Annotated[str, Field(max_length=4096)] = Field("", description="For example a stack trace.")
    again: bool = Field(True, description="false: no further attempt, the job is dead.")


class FailureItem(Failure):
    """The failure of one of several attempts."""

    id: Id


class FailureBatch(RequestModel):
    """Failures of several attempts."""

    jobs: Annotated[list[FailureItem], Field(min_length=1, max_length=BATCH_MAX)]


class Release(RequestModel):
    """Gives a job back unfinished."""

    token: Token
    delay: Delay = 0.0
    code: Literal["released", "unknown_task"] = Field(
        "released",
        description="unknown_task: this worker lacks the task, or the task does not take the arguments. The job then waits 1 s, doubling to 60 s, and is dead after 20 in a row.",
    )
    reason: Text = ""


class ReleaseItem(Release):
    """Gives one of several jobs back."""

    id: Id


class ReleaseBatch(RequestModel):
    """Gives several jobs back unfinished."""

    jobs: Annotated[list[ReleaseItem], Field(min_length=1, max_length=BATCH_MAX)]


class Note(RequestModel):
    """Checkpoint, log and cost of a running attempt."""

    token: Token
    checkpoint: Any = Field(
        None, description="Any JSON, for later attempts; at most 64 KiB. null deletes it; left out, it stays."
    )
    log: Annotated[str, Field(max_length=8192)] = Field(
        "", description="The last lines of the attempt's log."
    )
    cost: Annotated[int, Field(ge=0, lt=10**14), WHOLE] | None = Field(
        None, description="What the job really costs in all, in place of its `cost`."
    )


class NoteItem(Note):
    """The note of one of several attempts."""

    id: Id


class NoteBatch(RequestModel):
    """The notes of several attempts."""

    jobs: Annotated[list[NoteItem], Field(min_length=1, max_length=BATCH_MAX)]


class JobAction(RequestModel):
    """The revision that an order expects; null: any."""

    revision: Annotated[int, Field(ge=0, le=10**13), WHOLE] | None = Field(
        None, description="Fail if the job is at another revision."
    )


class Retry(JobAction):
    """The revision that a retry expects, and whether it begins anew."""

    anew: bool = Field(False, description="true: forget the job's kept steps; else it goes on after them.")


class Reschedule(JobAction):
    """Changes to a waiting job: its time, its priority, or both. What is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: _GIVEN}} for name in ("run_at", "delay", "priority")
            ],
            "not": {"required": ["delay", "run_at"], "properties": {"delay": _GIVEN, "run_at": _GIVEN}},
        }
    )

    run_at: Moment | None = Field(None, description="Its new time. One that has passed means now.")
    delay: Delay | None = Field(None, description="Seconds from now, instead of a time.")
    priority: Priority | None = None


class PoolMember(RequestModel):
    """A worker's pool, and the summons that started it, if any."""

    model_config = ConfigDict(json_schema_extra={"if": _SUMMONS, "then": _WITH_POOL})

    pool: Place = Field("", description="The pool that the worker belongs to.")
    summons: Place = Field(
        "",
        description="Id of the summons that started the worker; requires a pool. If the pool wants no more workers, has "
        "other queues or is gone, the worker must end at once.",
    )

    @model_validator(mode="after")
    def _summons_requires_pool(self) -> Self:
        if self.summons and not self.pool:
            raise ValueError("summons requires pool: add the pool's name")
        return self


class WorkerRegistration(PoolMember):
    """Registration of a worker, or its renewal."""

    life: Name = Field(description="Id of this start of the worker: a new one each time it starts.")
    worker_id: Place = Field(
        "",
        description="Worker identity (`SUBLET_WORKER_ID`): an exclusive name. The next worker with it takes over the leases.",
    )
    about: dict[str, Any] = Field({}, description="Host, pid, platform, totals …; at most 4 KiB.")


class OwnOptions(RequestModel):
    """A task's own options, for jobs that do not state them."""

    queue: Name = "default"
    priority: Priority = 0
    delay: Delay = 0.0
    max_attempts: Annotated[int, Field(ge=1, le=TRIES_MAX), WHOLE] = 3
    timeout: Timeout = 300.0
    stall: Stall | None = None
    retention: Retention = 86_400.0
    backoff: ExponentialBackoff = Field(default_factory=ExponentialBackoff)
    durability: Durability | None = None
    key: Key | None = None
    window: Window | None = None
    debounce: Debounce | None = None
    at_most: AtMost | None = None
    on_conflict: OnConflict | None = None
    tags: Tags = Field(default_factory=list)
    group: Group | None = None
    cost: Cost = 1
    keep_payload: bool = False


class TaskDescription(RequestModel):
    """A task of a worker."""

    name: Name
    summary: Annotated[str, Field(max_length=SUMMARY_MAX)] = ""
    options: OwnOptions = Field(default_factory=OwnOptions)
    arguments: dict[str, Any] | None = Field(None, description="JSON Schema of the payload.")
    result: dict[str, Any] | None = Field(None, description="JSON Schema of the result.")


class TaskPublication(RequestModel):
    """Tasks of a worker. A description above 8 KiB loses its result's schema; if needed, also the arguments'
    schema, then all the rest.
    """

    starting: bool = Field(
        True,
        description="true when the worker starts: its descriptions replace others; false for a renewal, about once an hour.",
    )
    tasks: Annotated[list[TaskDescription], Field(min_length=1, max_length=PUBLISH_MAX)]


class ReconcileRequest(RequestModel):
    """Names the life of a worker that has ended for certain."""

    life: Name


class RetireRequest(RequestModel):
    """Asks whether a pool's idle worker may end."""

    life: Name
    pool: Name
