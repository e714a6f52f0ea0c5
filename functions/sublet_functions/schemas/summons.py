"""Body of `POST /work`: the options of a worker."""

from typing import Annotated

from pydantic import Field

from sublet_functions.schemas.fields import WHOLE, Name
from sublet_functions.schemas.requests import PoolMember


class Summons(PoolMember):
    """Options of the worker to run, all optional; a pool's invoker sends them."""

    queues: Annotated[list[Name], Field(max_length=32)] = Field(
        [], description="Queues to claim from. Default: those of the app's tasks."
    )
    slots: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = Field(
        None, description="Jobs that run at the same time."
    )
    linger: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        0.0, description="Seconds that the worker stays when it is idle."
    )
