"""Queries and bodies of requests and responses for workflows."""

from typing import Annotated, Literal

from pydantic import Field

from sublet.model import State
from sublet.options import LONGEST
from sublet_functions.schemas.fields import Cursor, Id, OwnId
from sublet_functions.schemas.query import PageQuery
from sublet_functions.schemas.requests import NewJob, RequestModel
from sublet_functions.schemas.responses import WARNING, ResponseModel

JOBS_MAX = 10_000
Edges = Annotated[list[Id], Field(max_length=JOBS_MAX)]


class WorkflowQuery(PageQuery):
    """Query of `GET /workflows/{id}`: which page of its jobs."""

    state: list[State] = Field([], max_length=6, description="Only jobs in this state; repeat for several.")


class WorkflowJob(NewJob):
    """A job of a workflow: the fields of a job (a `key` is refused), and the jobs that it waits for."""

    name: Id | None = Field(None, description="What the other jobs of this request call it.")
    after: Edges = Field(
        [],
        description="The jobs that it waits for: names of this request, or whole ids of unfinished jobs that are stored.",
    )
    into: Edges = Field([], description="Waiting jobs that are to wait for this one, too: names, or ids.")
    on_failure: Literal["cancel", "run", "hold"] = Field(
        "cancel",
        description="If a job of `after` is dead or cancelled: cancel this one; run it when all have ended; or hold it until a "
        "retry.",
    )
    give_up: Annotated[float, Field(ge=1, le=LONGEST, allow_inf_nan=False)] | None = Field(
        None, description="Seconds of waiting after which it is cancelled."
    )


class NewWorkflow(RequestModel):
    """Jobs that wait for each other, to be stored together: all of them, or none."""

    id: OwnId | None = Field(
        None,
        description="Your own id: with it, the same request again stores nothing. The server puts the partition's number in front.",
    )
    jobs: Annotated[list[WorkflowJob], Field(min_length=1, max_length=JOBS_MAX)]


class SubmittedMember(ResponseModel):
    """Name and id of a job of a workflow, and a warning, if any."""

    name: str | None
    id: str
    warning: str | None = Field(None, description=WARNING)


class SubmittedWorkflow(ResponseModel):
    """Ids of the workflow, and of its jobs in the order of the request."""

    id: str
    jobs: list[SubmittedMember]


class WorkflowOrder(RequestModel):
    """An order for a workflow, for up to 200 of its jobs."""

    cursor: Cursor | None = None


class WorkflowOrdered(ResponseModel):
    """The answer for one page of an order. While `cursor` is set, send the order again with it."""

    id: str
    outcomes: dict[str, int] = Field(
        description="How many jobs had each outcome: cancelled, cascaded (cancelled with the job that they wait for), requested (it runs), "
        "queued, scheduled; unchanged: another job's end or retry did it."
    )
    refused: int = Field(description="How many were refused, for example because they had been deleted.")
    cursor: str | None
