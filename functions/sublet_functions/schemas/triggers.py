"""Bodies of `POST /work` and `POST /events`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, RootModel

from sublet_functions.schemas.fields import WHOLE, Name
from sublet_functions.schemas.query import TickQuery
from sublet_functions.schemas.requests import PoolMember

CLOCKS = ("aws.events", "aws.scheduler")
"""Values of `source` in AWS's scheduled events."""


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


class TickEvent(TickQuery):
    """An event that runs a tick, with its options."""

    model_config = ConfigDict(strict=True)  # unlike a query, JSON has types

    sublet: Literal["tick"]


class WorkEvent(Summons):
    """An event that runs a worker, with the options of `POST /work`."""

    sublet: Literal["work"]
    seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = Field(None, alias="for")


class PoolCall(Summons):
    """An event that a pool's invoker sends to run a worker."""

    model_config = ConfigDict(json_schema_extra={"required": ["pool", "summons"]})


class Clock(BaseModel):
    """A scheduled event of EventBridge, which runs a tick; its other fields are ignored."""

    model_config = ConfigDict(extra="allow")

    source: Literal["aws.events", "aws.scheduler"]
    detail_type: str = Field(alias="detail-type")


class _Shapes:
    @staticmethod
    def __get_pydantic_json_schema__(schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        models = (TickEvent, WorkEvent, PoolCall, Clock)
        return {"anyOf": [handler(model.__pydantic_core_schema__) for model in models]}


class Trigger(RootModel[Annotated[dict[str, Any], _Shapes]]):
    """One event, of any supported kind: a JSON object."""
