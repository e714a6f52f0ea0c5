"""`Then`: complete a job and submit others in one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from sublet.model import Submission

R = TypeVar("R")


@dataclass(frozen=True)
class Then(Generic[R]):
    """A task returns it: its job is completed with `result`, and `jobs`, made by `Task.job(…)`, are stored,
    both or neither.
    """

    result: R
    jobs: Sequence[Submission] = ()
    """At most 10,000, for queues in the job's partition."""
    callback: Submission | None = None
    """It runs when all `jobs` are completed, at once without any; `ctx.upstream` has their results."""
    on_failure: Literal["cancel", "run", "hold"] = "cancel"
    """If one of `jobs` fails: cancel or run the callback, or hold it for a retry."""
