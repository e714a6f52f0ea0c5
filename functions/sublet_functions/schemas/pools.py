"""What is sent of pools, with its limits."""

from typing import Annotated

from pydantic import Field

from sublet.operations.pool import QUEUES_MAX, SECONDS_MAX, SLOTS_MAX, TARGET_MAX, WORKERS_MAX, Kind
from sublet_functions.schemas.fields import WHOLE, Name
from sublet_functions.schemas.requests import Body

Workers = Annotated[int, Field(ge=0, le=WORKERS_MAX), WHOLE]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]


class PoolWish(Body):
    """A pool, as it shall be: what is not named has its default."""

    queues: list[Name] = Field(
        min_length=1, max_length=QUEUES_MAX, description="The first one first, each once."
    )
    invoker: Kind = Field(
        "none", description="Who is told to start a worker; `none`: others look at what is owed."
    )
    target: Annotated[str, Field(max_length=TARGET_MAX)] = Field(
        "", description="Whom that one calls: for `http` a URL, for `lambda` a function."
    )
    min: Workers = Field(0, description="Workers that are kept even when there is nothing to do.")
    max: Workers = Field(10, description="Workers at most.")
    wait: Annotated[float, Field(ge=0.001, le=SECONDS_MAX, allow_inf_nan=False)] = Field(
        5.0, description="Seconds that a job should wait at most."
    )
    slots: Annotated[int, Field(ge=1, le=SLOTS_MAX), WHOLE] = Field(
        10, description="Jobs that one worker runs at a time."
    )
    linger: Seconds = Field(5.0, description="Seconds that an idle worker stays.")
    arrive: Annotated[float, Field(ge=0.1, le=SECONDS_MAX, allow_inf_nan=False)] = Field(
        15.0, description="Seconds that a summoned worker is waited for; then another one is summoned."
    )
    revision: Annotated[int, Field(ge=0, le=10**13), WHOLE] | None = Field(
        None,
        description="Refuse, if the pool is no longer at this revision; 0 for one that is not to be there yet.",
    )
