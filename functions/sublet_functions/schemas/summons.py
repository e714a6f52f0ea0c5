"""What a summoned worker is told: the body of `POST /work`."""

from typing import Annotated

from pydantic import Field

from sublet_functions.schemas.fields import WHOLE, Name
from sublet_functions.schemas.requests import Called


class Summons(Called):
    """What a worker is to be: all of it may be left out, and then it does what there is to do."""

    queues: Annotated[list[Name], Field(max_length=32)] = Field(
        [], description="Whose jobs; without any, those of the app's tasks."
    )
    slots: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = Field(None, description="Jobs at a time.")
    linger: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        0.0, description="Seconds to stay when there is nothing to do."
    )
