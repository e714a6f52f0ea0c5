"""What a summoned worker is told: the body of `POST /work`."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from functions.bodies import WHOLE, Body, Name, Place

_SAID: dict[str, Any] = {"minLength": 1}


class Summons(Body):
    """What a worker is to be: all of it may be left out, and then it does what there is to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["summons"], "properties": {"summons": _SAID}},
            "then": {"required": ["pool"], "properties": {"pool": _SAID}},
        }
    )

    pool: Place = Field("", description="The pool that it works for.")
    queues: Annotated[list[Name], Field(max_length=32)] = Field(
        [], description="Whose jobs; without any, those of the app's tasks."
    )
    slots: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = Field(None, description="Jobs at a time.")
    linger: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = Field(
        0.0, description="Seconds to stay when there is nothing to do."
    )
    summons: Place = Field(
        "", description="What it was summoned by; where nobody waits for it any more, the worker ends at once."
    )

    @model_validator(mode="after")
    def _comes_with_a_pool(self) -> "Summons":
        if self.summons and not self.pool:
            raise ValueError("a summons comes with a pool: say which")
        return self
