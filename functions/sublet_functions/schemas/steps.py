"""Bodies of requests and responses for steps, suspensions, signals and streams."""

from typing import Annotated, Any, Literal

from pydantic import Field

from sublet.model import State
from sublet.steps.chunks import EMIT_MAX, PAGE
from sublet.workflows.following import FOLLOWING_MAX
from sublet_functions.schemas.fields import Delay, Id, Name, Token, Wait
from sublet_functions.schemas.query import Query
from sublet_functions.schemas.requests import BATCH_MAX, NewJob, RequestModel
from sublet_functions.schemas.responses import ResponseModel


class Steps(RequestModel):
    """Results of parts of a running task. The first value of a name stays."""

    token: Token
    steps: dict[Name, Any] = Field(
        {}, max_length=100, description="Value by name: any JSON, at most 64 KiB. Empty: read all kept steps."
    )


class Continuation(RequestModel):
    """An attempt's result, and the jobs that follow, each with an own id."""

    token: Token
    result: Any = Field(None, description="Any JSON, at most 256 KiB.")
    workflow: Id = Field(
        description="An own id for the workflow of these jobs, which begins with the partition of the job: `0-…`."
    )
    jobs: list[NewJob] = Field([], max_length=FOLLOWING_MAX)
    callback: NewJob | None = Field(None, description="It runs when all of the jobs are completed.")
    on_failure: Literal["cancel", "run", "hold"] = Field(
        "cancel",
        description="Of the callback, if a job is dead or cancelled: cancel it, run it, or hold it until a retry.",
    )


class CallRequest(RequestModel):
    """A job that a step of a running one calls."""

    token: Token
    step: Name = Field(description="The step that keeps its end.")
    job: NewJob = Field(
        description="Without an id, a key and an Idempotency-Key: its id is made of the caller and the step."
    )


class UpstreamRequest(RequestModel):
    """Asks for the outcomes of the jobs that a running job waited for."""

    token: Token
    start: int = Field(0, ge=0, lt=10**9, description="The first one: `following` of the last page.")


class UpstreamError(ResponseModel):
    """Why a job is dead or cancelled: a code, and its last attempt's message and detail, if any."""

    code: str
    message: str
    detail: str


class UpstreamOutcome(ResponseModel):
    """A job that another one waited for. Its state is null when it has been deleted."""

    id: str
    state: State | None
    result: Any
    error: UpstreamError | None


class UpstreamOutcomes(ResponseModel):
    """Up to 50 upstream jobs, in the order of `after`."""

    id: str
    jobs: list[UpstreamOutcome]
    following: int | None = Field(description="`start` of the next page; null: this is the last one.")


class Suspension(RequestModel):
    """Ends an attempt whose task waits."""

    token: Token
    kind: Literal["sleep", "signal", "call"] = Field(
        description="sleep: for a time. signal: until the signal arrives. call: until the called job has ended."
    )
    name: Name = Field(description="The step that ends the wait.")
    delay: Delay | None = Field(
        None,
        description="Seconds of the sleep (default: 0), or of the wait for the signal (null: no limit); null for a call.",
    )


class SuspensionItem(Suspension):
    """Ends one of several attempts."""

    id: Id


class SuspensionBatch(RequestModel):
    """Ends several attempts whose tasks wait."""

    jobs: Annotated[list[SuspensionItem], Field(min_length=1, max_length=BATCH_MAX)]


class Signal(RequestModel):
    """A signal for a job."""

    name: Name = Field(description="The step for which the task waits.")
    value: Any = Field(None, description="Any JSON, at most 64 KiB.")


class KeptStep(ResponseModel):
    """A kept step. Its kind: step, signal, sleep, timeout, call (the value is the id of a job that has not ended), called."""

    kind: str
    kept_at: str
    value: Any


class KeptSteps(ResponseModel):
    """Those of the request's steps that were kept before, and stay; without steps in the request, all."""

    id: str
    steps: dict[str, KeptStep]


class KeptCall(ResponseModel):
    """The calling job's id, and its step."""

    id: str
    step: KeptStep


class KeptSignal(ResponseModel):
    """The job that has the signal."""

    id: str
    state: Literal["kept"]


class Emission(RequestModel):
    """Chunks of a running task's output."""

    token: Token
    before: Annotated[int, Field(ge=0, lt=10**14)] | None = Field(
        None,
        description="How many chunks this attempt has emitted before these: a repeated request then adds none again. Without it "
        "each request adds its chunks.",
    )
    chunks: Annotated[list[Any], Field(min_length=1, max_length=EMIT_MAX)] = Field(
        description="Each any JSON, at most 64 KiB."
    )


class StreamQuery(Query):
    """Query of `GET /jobs/{id}/stream`: the position. `limit` and `wait` apply to pages, not to a stream."""

    after: Annotated[str, Field(max_length=64)] | None = Field(
        None,
        description="The id of an event, or the cursor of the previous page. Default: from the oldest chunk kept.",
    )
    last: Annotated[int, Field(ge=1, le=PAGE)] | None = Field(
        None, description="Without a position: begin with the last entries, so many at the most."
    )
    limit: Annotated[int, Field(ge=1, le=PAGE)] = Field(PAGE, description="Page size.")
    wait: Wait = Field(0.0, description="Seconds to wait for the first chunk, or the job's end.")


class StreamedChunk(ResponseModel):
    """A chunk, and the attempt that emitted it."""

    id: str
    attempt: int
    value: Any = Field(description="Null unless the token sees payloads.")


class ChunksPage(ResponseModel):
    """Chunks of a job, in order. A page without chunks whose job has ended is the last."""

    id: str
    state: State | None = Field(description="Null if the job was deleted.")
    chunks: list[StreamedChunk]
    cursor: str = Field(description="`after` of the next page.")
    missed: bool = Field(description="Chunks after the requested position were dropped: the stream was full.")
