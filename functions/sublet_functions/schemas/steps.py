"""Bodies of requests and responses for steps, suspensions and signals."""

from typing import Annotated, Any, Literal

from pydantic import Field

from sublet_functions.schemas.fields import Delay, Id, Name, Token
from sublet_functions.schemas.requests import BATCH_MAX, RequestModel
from sublet_functions.schemas.responses import ResponseModel


class Steps(RequestModel):
    """Results of parts of a running task. The first value of a name stays."""

    token: Token
    steps: dict[Name, Any] = Field(
        {}, max_length=100, description="Value by name: any JSON, at most 64 KiB. Empty: read all kept steps."
    )


class Suspension(RequestModel):
    """Ends an attempt whose task waits."""

    token: Token
    kind: Literal["sleep", "signal"] = Field(
        description="sleep: for a time. signal: until the signal arrives."
    )
    name: Name = Field(description="The step that ends the wait.")
    delay: Delay | None = Field(
        None, description="Seconds of the sleep (default: 0), or of the wait for the signal (null: no limit)."
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
    """A kept step. Its kind: step, signal, sleep, or timeout (of a wait for a signal)."""

    kind: str
    kept_at: str
    value: Any


class KeptSteps(ResponseModel):
    """Those of the request's steps that were kept before, and stay; without steps in the request, all."""

    id: str
    steps: dict[str, KeptStep]


class KeptSignal(ResponseModel):
    """The job that has the signal."""

    id: str
    state: Literal["kept"]
