"""Models of queries and of path parameters."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sublet.model import State
from sublet.operations.history import Span
from sublet.store.events import PAGE
from sublet_functions.schemas.fields import (
    Claimer,
    ClaimId,
    Cursor,
    Group,
    Id,
    LeaseTime,
    Limit,
    Moment,
    Name,
    QueueEntry,
    QueueName,
    ScheduleName,
    Tag,
    Wait,
)


class Query(BaseModel):
    """The base of models for queries: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Empty(Query):
    """An empty query, or the body of a route that reads none."""


class AnyQuery(BaseModel):
    """A query that the server ignores."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class PathParams(Query):
    """The parameters in the paths of all routes, by the name in braces (`/jobs/{id}`); a route has some."""

    id: Id | None = Field(None, description="The id of the job, or of the workflow.")
    queue: QueueName | None = Field(None, description="The queue's name; `*` is the whole namespace.")
    group: Group | None = Field(None, description="The group: 1 to 128 visible ASCII characters.")
    name: Name | None = Field(None, description="The name of the worker, the pool, or the task.")
    schedule: ScheduleName | None = Field(None, description="The schedule's name.")
    file: Annotated[str, Field(pattern=r"^[a-z-]{1,64}\.[a-z]{1,8}$")] | None = Field(
        None, description="A file of the dashboard."
    )


class EventQuery(Query):
    """Query of `POST /jobs`, for CloudEvents only: the event becomes a job."""

    model_config = ConfigDict(json_schema_extra={"dependentRequired": {"queue": ["task"]}})

    task: Name | None = Field(
        None, description="For a CloudEvent: the task that receives it as its argument `event`."
    )
    queue: Name | None = Field(None, description="The queue of that job, instead of `default`.")

    @model_validator(mode="after")
    def _queue_requires_task(self) -> Self:
        if self.queue is not None and self.task is None:
            raise ValueError(
                "queue is only for CloudEvents, together with task: for any other job, name its queue in the body"
            )
        return self


class ClaimNextQuery(Query):
    """Query of `GET /jobs/next`: a claim of one job."""

    queue: list[QueueEntry] = Field(
        ["default"],
        min_length=1,
        max_length=32,
        description="Repeat for several queues; the first one is tried first.",
    )
    lease: LeaseTime = 30.0
    worker: Claimer | None = None
    claim_id: ClaimId | None = None
    wait: Wait = Field(0.0, description="Seconds to wait for a job.")


class LifeQuery(Query):
    """Query that names one life of a worker."""

    life: Name = Field(description="The `life` with which the worker registered.")


class WorkersQuery(Query):
    """Query of `GET /workers`: which ones, and whether with their jobs."""

    jobs: bool = Field(
        True,
        description="false omits the jobs that each worker holds (to find them, every running job is read), and lists "
        "all workers, not only the 1,000 seen last.",
    )
    own: bool = Field(
        False,
        description="true: only the workers of this token, by the names that they gave. `admin` gets all.",
    )


class WaitQuery(Query):
    """Query of `GET /jobs/{id}`: how long to wait for the job's end."""

    wait: Wait = Field(0.0, description="Seconds to wait for the job's end.")


class ListQuery(Query):
    """Query of `GET /jobs`: filters, which must all match, and one page."""

    state: list[State] = Field([], max_length=6, description="Only jobs in this state; repeat for several.")
    queue: Name | None = Field(None, description="Only jobs of this queue.")
    task: Name | None = Field(None, description="Only jobs of this task.")
    tag: Tag | None = Field(None, description="Only jobs with this tag.")
    group: Group | None = Field(None, description="Only jobs of this group.")
    workflow: Id | None = Field(None, description="Only jobs of this workflow.")
    code: Name | None = Field(
        None, description="Only jobs whose last error has this code, e.g. `ValueError` or `lease_expired`."
    )
    worker: Name | None = Field(
        None, description="Only jobs whose last attempt, running or ended, this worker has or had."
    )
    since: Moment | None = Field(None, description="Only jobs submitted then or later.")
    until: Moment | None = Field(None, description="Only jobs submitted before then.")
    limit: Limit = 50
    cursor: Cursor | None = None

    @model_validator(mode="after")
    def _until_after_since(self) -> Self:
        if self.since and self.until and self.since >= self.until:
            raise ValueError("until must be later than since: both are times of submission")
        return self


class PageQuery(Query):
    """Query of a list: which page."""

    limit: Limit = 50
    cursor: Cursor | None = None


class EventsQuery(Query):
    """Query of `GET /events`: position and filters. `limit` and `wait` apply to pages, not to a stream."""

    after: Annotated[str, Field(max_length=4096)] | None = Field(
        None,
        description="An event's id, or the cursor of the previous page; 0 for the oldest event kept. Default: from now on.",
    )
    limit: Annotated[int, Field(ge=1, le=PAGE)] = Field(100, description="Page size.")
    wait: Wait = Field(0.0, description="Seconds to wait for the first event.")
    job: Id | None = Field(None, description="Only events of this job.")
    state: State | None = Field(None, description="Only changes to this state.")


class StatsQuery(Query):
    """Query of `GET /stats`: the queues whose jobs to count."""

    queue: list[Name] = Field(
        [], max_length=32, description="Only this queue; repeat for the sum of several. Default: all queues."
    )


class HistoryQuery(Query):
    """Query of `GET /history`: how far back."""

    span: Span = Field("hour", description="The last hour or day by minutes, or the last 30 days by hours.")


class TickQuery(Query):
    """Query of `/tick`: how long the tick runs."""

    seconds: Annotated[float, Field(ge=0, le=55, allow_inf_nan=False)] = Field(
        0.0, alias="for", description="Seconds for which rounds are repeated; 0 for one round."
    )
    every: Annotated[float, Field(ge=0.1, le=60, allow_inf_nan=False)] = Field(
        5.0, description="Seconds between two rounds."
    )


class WorkQuery(Query):
    """Query of `POST /work`: how long the worker runs."""

    seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = Field(
        None,
        alias="for",
        description="Seconds after which the worker has ended. Default and maximum: the server's own limit.",
    )
