"""`Then`: what a task returns to complete its job and submit others in one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from sublet.model import Submission

R = TypeVar("R")


@dataclass(frozen=True)
class Then(Generic[R]):
    """A task returns it: its job is completed with `result`, and `jobs` are stored, both or neither. `callback` runs when all
    of them are completed, at once if there are none. `Task.job(…)` makes them.
    """

    result: R
    jobs: Sequence[Submission] = ()
    """At most 10,000, in the partition of the job."""
    callback: Submission | None = None
    """It reads their results from `ctx.upstream`."""
    on_failure: Literal["cancel", "run", "hold"] = "cancel"
    """Of the callback, as in `Workflow.add`."""
