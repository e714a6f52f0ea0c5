"""What stands behind the `?` of an address, each with its limits: text, read as what it means."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from functions.bodies import ClaimId, Cursor, LeaseTime, Limit, Name, Wait
from jobs.model import State


class Query(BaseModel):
    """What stands behind the `?`: text, read as what it means."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Nothing(Query):
    """No body, or no query."""


class NextQuery(Query):
    """A wish for one job."""

    queue: list[Name] = Field(["default"], min_length=1, max_length=32)
    lease: LeaseTime = 30.0
    worker: Name = "http"
    claim_id: ClaimId | None = None
    wait: Wait = 0.0


class LifeQuery(Query):
    """Which life of a worker."""

    life: Name


class WaitQuery(Query):
    """How long to wait for the job's end."""

    wait: Wait = Field(0.0, description="Seconds to wait for the job's end.")


class ListQuery(Query):
    """Which jobs."""

    state: State | None = None
    queue: Name | None = None
    task: Name | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class PageQuery(Query):
    """Which page."""

    limit: Limit = 50
    cursor: Cursor | None = None


class TickQuery(Query):
    """For how long."""

    seconds: Annotated[float, Field(ge=0, le=55, allow_inf_nan=False)] = Field(0.0, alias="for", description="Go on for so long.")
    every: Annotated[float, Field(ge=0.1, le=60, allow_inf_nan=False)] = Field(5.0, description="Seconds between two rounds.")
