"""What is sent over HTTP, each with its limits. With queries and answers, the OpenAPI document is made of these.

Durations are seconds, moments are RFC 3339. Bodies are read strictly: a number in quotes is no number, and a field that
nobody knows is a fault, for it was meant to do something.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sublet.options import Durability
from sublet_functions.schemas.fields import (
    WHOLE,
    Claimer,
    ClaimId,
    Delay,
    Id,
    LeaseTime,
    Moment,
    Name,
    OwnId,
    Place,
    Text,
    Token,
    Wait,
)

BATCH_MAX = 1000
"""Items that one request carries."""

_GIVEN: dict[str, Any] = {"not": {"type": "null"}}
_SAID: dict[str, Any] = {"minLength": 1}
_WITH_KEY: dict[str, Any] = {"required": ["key"], "properties": {"key": _GIVEN}}


class Body(BaseModel):
    """What is sent: strict, and complete."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Growing(Body):
    """How long to wait before the next try: `first` seconds, times `factor` for each further one, at most `cap`."""

    first: Delay = 1.0
    factor: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 2.0
    cap: Delay = 300.0


class NewJob(Body):
    """A job to be."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [  # what `sublet.options` refuses
                {
                    "not": {
                        "required": ["delay", "run_at"],
                        "properties": {"delay": {"exclusiveMinimum": 0}, "run_at": _GIVEN},
                    }
                },
                {"if": {"required": ["window"], "properties": {"window": _GIVEN}}, "then": _WITH_KEY},
            ]
        }
    )

    task: Name
    payload: dict[str, Any] = Field({}, description="The task's arguments by name; at most 256 KiB.")
    queue: Name = "default"
    delay: Delay = Field(0.0, description="How long to wait before the first try.")
    run_at: Moment | None = Field(None, description="The moment of the first try, instead of a delay.")
    priority: Annotated[int, Field(ge=-100, le=100), WHOLE] = Field(0, description="Higher goes first.")
    key: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = Field(
        None, description="While a job with this key is unfinished in its queue, that job is the answer."
    )
    window: Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="Let the key stand this long, instead of until the job ends."
    )
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] = Field(
        3, description="Tries before the job is dead."
    )
    timeout: Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)] | Literal["none"] = Field(
        300.0, description="How long one attempt may take."
    )
    retention: float = Field(
        86_400.0, ge=60, le=1e9, allow_inf_nan=False, description="How long the completed job is kept."
    )
    backoff: Delay | Growing = Field(
        default_factory=Growing,
        description="Seconds before the next try, or how they grow: 1 s, doubling, 300 s at most.",
    )
    trace: Annotated[str, Field(pattern=r"^[0-9a-f][0-9a-f-]{1,127}$")] | None = Field(
        None, description="A W3C traceparent."
    )
    durability: Durability | None = Field(
        None,
        description="What the answer waits for: nothing but Redis, replicas, or its disk; null: as the server is set.",
    )
    id: OwnId | None = Field(
        None,
        description="An id of your own: the same again answers with the same job. It gets the partition's number in front.",
    )


class NewJobs(Body):
    """Many jobs to be; each is taken in or refused on its own."""

    jobs: Annotated[list[NewJob], Field(min_length=1, max_length=BATCH_MAX)]


class Claim(Body):
    """A wish for jobs."""

    queues: list[Name] = Field(["default"], min_length=1, max_length=32, description="The first one first.")
    n: Annotated[int, Field(ge=0, le=100), WHOLE] = Field(
        1, description="Jobs wanted; 0 does the upkeep alone."
    )
    lease: LeaseTime = 30.0
    worker: Claimer | None = None
    claim_id: ClaimId | None = None
    wait: Wait = Field(0.0, description="Seconds to wait for the first job.")


class Beat(Body):
    """A sign of life."""

    token: Token
    lease: LeaseTime = 30.0
    progress: Any = Field(None, description="How far the work is: any JSON, at most 1 KiB.")


class OneBeat(Body):
    """A sign of life for one of several leases."""

    id: Id
    token: Token
    progress: Any = None


class Beats(Body):
    """Signs of life."""

    lease: LeaseTime = 30.0
    jobs: Annotated[list[OneBeat], Field(min_length=1, max_length=BATCH_MAX)]


class Completion(Body):
    """The job is done."""

    token: Token
    result: Any = Field(None, description="Any JSON, at most 256 KiB.")


class OneCompletion(Completion):
    """One of several jobs is done."""

    id: Id


class Completions(Body):
    """Jobs are done."""

    jobs: Annotated[list[OneCompletion], Field(min_length=1, max_length=BATCH_MAX)]


class Failure(Body):
    """The attempt came to nothing."""

    token: Token
    code: Name = Field("failed", description="One word for what went wrong.")
    message: Text = ""
    detail: Annotated[str, Field(max_length=4096)] = Field("", description="A stack trace, say.")
    again: bool = Field(True, description="false buries the job at once, whatever tries are left.")


class OneFailure(Failure):
    """One of several attempts came to nothing."""

    id: Id


class Failures(Body):
    """Attempts came to nothing."""

    jobs: Annotated[list[OneFailure], Field(min_length=1, max_length=BATCH_MAX)]


class Release(Body):
    """The job is given back unfinished, and its try with it."""

    token: Token
    delay: Delay = 0.0
    reason: Text = ""


class OneRelease(Release):
    """One of several jobs is given back."""

    id: Id


class Releases(Body):
    """Jobs are given back."""

    jobs: Annotated[list[OneRelease], Field(min_length=1, max_length=BATCH_MAX)]


class Note(Body):
    """What the attempt leaves with its job."""

    token: Token
    checkpoint: Any = Field(None, description="Any JSON, for the attempts to come; at most 64 KiB.")
    log: Annotated[str, Field(max_length=8192)] = Field("", description="The last lines of its log.")


class OneNote(Note):
    """A note for one of several jobs."""

    id: Id


class Notes(Body):
    """Notes for several jobs."""

    jobs: Annotated[list[OneNote], Field(min_length=1, max_length=BATCH_MAX)]


class Order(Body):
    """An operator's order."""

    revision: Annotated[int, Field(ge=0, le=10**13), WHOLE] | None = Field(
        None, description="Refuse, if the job is no longer at this revision."
    )


class QueueChange(Body):
    """What is to change about a queue; what is not named stays (RFC 7396)."""

    paused: bool | None = Field(None, description="true hands out no more of its jobs.")
    limits: dict[
        Literal["jobs", "bytes", "completed", "dead", "cancelled"],
        Annotated[int, Field(ge=0, lt=10**14), WHOLE] | None,
    ] = Field(
        {},
        description="The most it may hold; null lifts one. `completed`, `dead` and `cancelled` are for `*`, the namespace.",
    )


class Called(Body):
    """Who comes to work, perhaps as it was summoned."""

    model_config = ConfigDict(
        json_schema_extra={"if": {"required": ["summons"], "properties": {"summons": _SAID}},
                           "then": {"required": ["pool"], "properties": {"pool": _SAID}}}
    )  # fmt: skip

    pool: Place = Field("", description="The pool whose work it does.")
    summons: Place = Field(
        "",
        description="What it was summoned by: comes with a pool. Where nobody waits for it any more, it is to go at once.",
    )

    @model_validator(mode="after")
    def _comes_with_a_pool(self) -> Self:
        if self.summons and not self.pool:
            raise ValueError("a summons comes with a pool: say which")
        return self


class Card(Called):
    """What a worker says of itself."""

    life: Name = Field(description="A word of its own choice, another one each time it starts.")
    worker_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{0,128}$")] = Field(
        "",
        description="Exclusive identity of the worker (`SUBLET_WORKER_ID`): the next worker with it takes over its leases.",
    )
    about: dict[str, Any] = Field({}, description="Host, pid, platform, what it has done …; at most 4 KiB.")


class Gone(Body):
    """A worker that is gone for good."""

    life: Name


class Retiring(Body):
    """An idle worker that asks to go."""

    life: Name
    pool: Name
