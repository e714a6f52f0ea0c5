"""Request and response bodies of schedules."""

from typing import Annotated, Any

from pydantic import Field

from sublet.schedules.definition import Schedule
from sublet.schedules.recurrence import Recurrence
from sublet_functions.schemas.fields import (
    WHOLE,
    Cost,
    Group,
    Name,
    OwnId,
    Priority,
    Retention,
    Stall,
    Tags,
    Timeout,
    Tries,
)
from sublet_functions.schemas.requests import AnyBackoff, ExponentialBackoff, RequestModel
from sublet_functions.schemas.responses import WARNING, ResponseModel


class NewSchedule(Recurrence):
    """All settings of a schedule. Fields that are left out have the task's own values, if the server knows the
    task; else these defaults.
    """

    # The numbers of Recurrence again, for the JSON schema.
    every: Annotated[float, Field(ge=1, le=315_576_000, allow_inf_nan=False)] | None = Field(
        None, validate_default=True, description="Seconds between two occurrences, instead of cron."
    )
    jitter: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        0.0,
        description="Each occurrence is delayed by a random time of up to this many seconds, and never beyond the next one.",
    )
    late: Annotated[float, Field(ge=0, le=315_576_000, allow_inf_nan=False)] = Field(
        300.0, description="With missed=skip: how many seconds late an occurrence may still be fired."
    )
    most: Annotated[int, Field(ge=1, le=100), WHOLE] = Field(
        24, description="With missed=all: how many missed occurrences are fired at once."
    )
    task: Name
    payload: dict[str, Any] = Field({}, description="Arguments of its jobs, by name; at most 256 KiB.")
    queue: Name = "default"
    priority: Priority = 0
    max_attempts: Tries = 3
    timeout: Timeout = 300.0
    stall: Stall | None = None
    retention: Retention = 86_400.0
    backoff: AnyBackoff = Field(default_factory=ExponentialBackoff)
    tags: Tags = Field(default_factory=list)
    group: Group | None = None
    cost: Cost = 1
    keep_payload: bool = Field(False, description="Keep the payload of its jobs after completion.")


class StoredSchedule(Schedule):
    """A schedule as it is stored, with its next occurrences and last jobs."""

    warning: str | None = Field(None, description=WARNING)


class ScheduleRun(RequestModel):
    """Options of one extra job of a schedule."""

    id: OwnId | None = Field(
        None,
        description="Your own id: repeating it returns the same job. The server puts the partition's number in front.",
    )


class SchedulesPage(ResponseModel):
    """One page of schedules, ordered by name."""

    schedules: list[Schedule]
    cursor: str | None
