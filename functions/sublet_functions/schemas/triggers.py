"""What platforms say that call a function with no HTTP request: the body of `POST /events`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, RootModel

from sublet_functions.schemas.query import TickQuery
from sublet_functions.schemas.summons import Summons

CLOCKS = ("aws.events", "aws.scheduler")
"""Sources of AWS's events that stand for the passing of time."""


class TickEvent(TickQuery):
    """Upkeep, please."""

    model_config = ConfigDict(strict=True)  # a query is text, and this is JSON

    sublet: Literal["tick"]


class WorkEvent(Summons):
    """A worker, please: what it is told, and for how long."""

    sublet: Literal["work"]
    seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = Field(None, alias="for")


class PoolCall(Summons):
    """The same, as a pool's invoker says it."""

    model_config = ConfigDict(json_schema_extra={"required": ["pool", "summons"]})


class Clock(BaseModel):
    """A scheduled event of EventBridge, whatever else it says."""

    model_config = ConfigDict(extra="allow")

    source: Literal["aws.events", "aws.scheduler"]
    detail_type: str = Field(alias="detail-type")


class _Shapes:
    """Describes what is read one by one, so that what fits none of them can be told in better words than a union's."""

    @staticmethod
    def __get_pydantic_json_schema__(schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {
            "anyOf": [
                handler(one.__pydantic_core_schema__) for one in (TickEvent, WorkEvent, PoolCall, Clock)
            ]
        }


class Trigger(RootModel[Annotated[dict[str, Any], _Shapes]]):
    """What a platform says that calls with no HTTP request: one JSON object."""
