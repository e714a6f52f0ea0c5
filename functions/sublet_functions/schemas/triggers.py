"""Bodies of `POST /events`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, RootModel

from sublet_functions.schemas.query import TickQuery
from sublet_functions.schemas.summons import Summons

CLOCKS = ("aws.events", "aws.scheduler")
"""Values of `source` in AWS's scheduled events."""


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
