"""What is said of schedules over HTTP: what is sent, and what comes back."""

from typing import Annotated, Any, Literal

from pydantic import Field

from sublet.schedules.definition import Schedule
from sublet.schedules.recurrence import Recurrence
from sublet_functions.schemas.fields import WHOLE, Delay, Name, OwnId
from sublet_functions.schemas.requests import Body, Growing
from sublet_functions.schemas.responses import Answer


class NewSchedule(Recurrence):
    """A schedule to be, whole: what is not named has its default."""

    # the numbers once more, as a schema can say their limits

    every: Annotated[float, Field(ge=1, le=315_576_000, allow_inf_nan=False)] | None = Field(
        None, validate_default=True, description="Seconds from occurrence to occurrence, instead of cron."
    )
    jitter: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        0.0,
        description="Each occurrence is due up to this many seconds later, and always before the next one.",
    )
    late: Annotated[float, Field(ge=0, le=315_576_000, allow_inf_nan=False)] = Field(
        300.0, description="With missed=skip: how many seconds late an occurrence may be fired."
    )
    most: Annotated[int, Field(ge=1, le=100), WHOLE] = Field(
        24, description="With missed=all: how many occurrences are made up for at once."
    )
    task: Name
    payload: dict[str, Any] = Field({}, description="The arguments of its jobs by name; at most 256 KiB.")
    queue: Name = "default"
    priority: Annotated[int, Field(ge=-100, le=100), WHOLE] = Field(0, description="Higher goes first.")
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] = Field(
        3, description="Tries before a job is dead."
    )
    timeout: Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)] | Literal["none"] = Field(
        300.0, description="How long one attempt may take."
    )
    retention: float = Field(
        86_400.0, ge=60, le=1e9, allow_inf_nan=False, description="How long a completed job is kept."
    )
    backoff: Delay | Growing = Field(
        default_factory=Growing,
        description="Seconds before the next try, or how they grow: 1 s, doubling, 300 s at most.",
    )


class RunNow(Body):
    """One job of a schedule, beside its occurrences."""

    id: OwnId | None = Field(
        None,
        description="An id of your own: the same again answers with the same job. It gets the partition's number in front.",
    )


class SchedulesPage(Answer):
    """Some schedules, by name."""

    schedules: list[Schedule]
    cursor: str | None
