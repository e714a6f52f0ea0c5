"""What stands behind the `?` of an address, each with its limits: text, read as what it means."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sublet.model import State
from sublet_functions.schemas.fields import (
    Claimer,
    ClaimId,
    Cursor,
    Id,
    LeaseTime,
    Limit,
    Name,
    QueueName,
    Wait,
)


class Query(BaseModel):
    """What stands behind the `?`: text, read as what it means."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Nothing(Query):
    """No body, or no query."""


class Words(Query):
    """What stands in a path where its template has a name in braces."""

    id: Id | None = Field(None, description="The job's id.")
    queue: QueueName | None = Field(None, description="The queue's name; `*` stands for the whole namespace.")
    name: Name | None = Field(
        None, description="The name of the worker, the pool, or the schedule (40 characters at most)."
    )


class EventQuery(Query):
    """What becomes of a CloudEvent."""

    model_config = ConfigDict(json_schema_extra={"dependentRequired": {"queue": ["task"]}})

    task: Name | None = Field(
        None, description="For a CloudEvent: the task that is to have it, as its argument `event`."
    )
    queue: Name | None = Field(None, description="The queue of that job, instead of `default`.")

    @model_validator(mode="after")
    def _queue_comes_with_task(self) -> Self:
        if self.queue is not None and self.task is None:
            raise ValueError("queue comes with task: say which task is to have the event")
        return self


class NextQuery(Query):
    """A wish for one job."""

    queue: list[Name] = Field(
        ["default"], min_length=1, max_length=32, description="Once for each queue, the first one first."
    )
    lease: LeaseTime = 30.0
    worker: Claimer | None = None
    claim_id: ClaimId | None = None
    wait: Wait = Field(0.0, description="Seconds to wait for a job.")


class LifeQuery(Query):
    """Which life of a worker."""

    life: Name = Field(description="The word that the worker chose when it started.")


class WorkersQuery(Query):
    """How much of the workers."""

    jobs: bool = Field(
        True, description="false leaves out what they hold, which takes a look at every running job."
    )


class WaitQuery(Query):
    """How long to wait for the job's end."""

    wait: Wait = Field(0.0, description="Seconds to wait for the job's end.")


class ListQuery(Query):
    """Which jobs."""

    state: State | None = Field(None, description="Only those in this state.")
    queue: Name | None = Field(None, description="Only those of this queue.")
    task: Name | None = Field(None, description="Only those of this task.")
    limit: Limit = 50
    cursor: Cursor | None = None


class PageQuery(Query):
    """Which page."""

    limit: Limit = 50
    cursor: Cursor | None = None


class TickQuery(Query):
    """For how long."""

    seconds: Annotated[float, Field(ge=0, le=55, allow_inf_nan=False)] = Field(
        0.0, alias="for", description="Go on for so long."
    )
    every: Annotated[float, Field(ge=0.1, le=60, allow_inf_nan=False)] = Field(
        5.0, description="Seconds between two rounds."
    )
