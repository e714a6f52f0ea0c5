"""The body of `POST /events`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, RootModel

from sublet_functions.schemas.query import TickQuery
from sublet_functions.schemas.summons import Summons

CLOCKS = ("aws.events", "aws.scheduler")
"""Sources of AWS's scheduled events."""


class TickEvent(TickQuery):
    """Run a tick."""

    model_config = ConfigDict(strict=True)  # unlike a query, JSON has types

    sublet: Literal["tick"]


class WorkEvent(Summons):
    """Run a worker, with the options of `POST /work`."""

    sublet: Literal["work"]
    seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = Field(None, alias="for")


class PoolCall(Summons):
    """Run a worker, as a pool's invoker calls for it."""

    model_config = ConfigDict(json_schema_extra={"required": ["pool", "summons"]})


class Clock(BaseModel):
    """A scheduled event of EventBridge; its other fields are ignored."""

    model_config = ConfigDict(extra="allow")

    source: Literal["aws.events", "aws.scheduler"]
    detail_type: str = Field(alias="detail-type")


class _Shapes:
    """The JSON schema of all events. Each is parsed by its kind: a pydantic union has worse messages."""

    @staticmethod
    def __get_pydantic_json_schema__(schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        models = (TickEvent, WorkEvent, PoolCall, Clock)
        return {"anyOf": [handler(model.__pydantic_core_schema__) for model in models]}


class Trigger(RootModel[Annotated[dict[str, Any], _Shapes]]):
    """One event: a JSON object."""
