"""Bodies of `POST /jobs/retry`, `/jobs/cancel`, `/jobs/promote` and `/jobs/erase`: filters of jobs."""

from typing import Annotated, Literal

from pydantic import Field

from sublet.model import State, Timestamp
from sublet_functions.schemas.fields import WHOLE, Cursor, Id, Moment, Name, Tag
from sublet_functions.schemas.requests import RequestModel
from sublet_functions.schemas.responses import BatchItem, ResponseModel


class JobFilter(RequestModel):
    """The jobs of an order: each given value must fit."""

    state: State | None = Field(
        None, description="Default: dead for retry, scheduled and queued for cancel, else all that fit."
    )
    queue: Name | None = None
    task: Name | None = None
    code: Name | None = Field(None, description="The code of the job's last error.")
    tag: Tag | None = None
    workflow: Id | None = Field(
        None,
        description="The workflow of the jobs. Then cancel also takes running ones and closes an open workflow, and retry takes "
        "dead and cancelled ones, but those that come back by the retry of another.",
    )
    worker: Name | None = Field(None, description="The worker of the last attempt, running or ended.")
    since: Moment | None = Field(None, description="Submitted then or later.")
    until: Moment | None = Field(None, description="Submitted earlier.")
    message: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="The last error's message; numbers and quoted text in it may be others."
    )


class BulkOrder(RequestModel):
    """An order for a filter's jobs, up to 200 a page."""

    filter: JobFilter = Field(description="`{}` selects all jobs that the order takes.")
    expected: Annotated[int, Field(ge=0, le=10**9), WHOLE] | None = Field(
        None,
        description="How many jobs were counted, on all pages: the order stops at a page that finds over a tenth more.",
    )
    counted_at: Moment | None = Field(
        None,
        description="The `counted_at` of the count. Jobs that were submitted, or have ended, since then are left out. Default: the time of the first page.",
    )
    dry_run: bool = Field(False, description="true: only count.")
    cursor: Cursor | None = None


class OrderedJob(BatchItem):
    """One job's outcome, and its revision before the order."""

    revision: int
    state: State | Literal["erased", "unchanged", "cascaded"] | None = None  # type: ignore[assignment]  # wider than in other batches


class OrderResult(ResponseModel):
    """One page of an order, with `found` jobs. While `cursor` is set another follows."""

    found: int
    counted_at: Timestamp = Field(description="The moment of the count, or of the order's first page.")
    jobs: list[OrderedJob] = Field(description="Empty after a dry run.")
    cursor: str | None
