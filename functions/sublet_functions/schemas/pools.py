"""Body of `PUT /pools/{pool}`: a pool's settings."""

from typing import Annotated

from pydantic import Field

from sublet.operations.pool import QUEUES_MAX, SECONDS_MAX, SLOTS_MAX, TARGET_MAX, WORKERS_MAX, Kind
from sublet_functions.schemas.fields import WHOLE, Name
from sublet_functions.schemas.requests import RequestModel

WorkerCount = Annotated[int, Field(ge=0, le=WORKERS_MAX), WHOLE]
Seconds = Annotated[float, Field(ge=0, le=SECONDS_MAX, allow_inf_nan=False)]


class PoolSettings(RequestModel):
    """All settings of a pool. A field that is left out has its default."""

    queues: list[Name] = Field(
        min_length=1,
        max_length=QUEUES_MAX,
        description="The pool's queues, each once; the first has precedence.",
    )
    invoker: Kind = Field(
        "none", description="How workers are started; `none`: an autoscaler reads how many are wanted."
    )
    target: Annotated[str, Field(max_length=TARGET_MAX)] = Field(
        "", description="What the invoker calls: a URL for `http`, a function for `lambda`; else empty."
    )
    min: WorkerCount = Field(0, description="Workers kept running even when idle.")
    max: WorkerCount = Field(10, description="Most workers.")
    wait: Annotated[float, Field(ge=0.001, le=SECONDS_MAX, allow_inf_nan=False)] = Field(
        5.0, description="Longest time in seconds that a job should wait."
    )
    slots: Annotated[int, Field(ge=1, le=SLOTS_MAX), WHOLE] = Field(
        10, description="Jobs that one worker runs at the same time."
    )
    linger: Seconds = Field(5.0, description="Seconds that an idle worker stays.")
    arrive: Annotated[float, Field(ge=0.1, le=SECONDS_MAX, allow_inf_nan=False)] = Field(
        15.0, description="Seconds in which a summoned worker must register; then another one is summoned."
    )
    revision: Annotated[int, Field(ge=0, le=10**13), WHOLE] | None = Field(
        None,
        description="Fail if the pool is at another revision; 0: fail if the pool exists.",
    )
