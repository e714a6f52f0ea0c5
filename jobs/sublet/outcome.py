"""`Outcome`: the state of a job, and its result or error."""

from dataclasses import dataclass
from typing import Any

from sublet.model import State


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job's state at one moment and, if it had ended, its result or error."""

    id: str
    state: State | None
    """The job's state; None if there is no such job."""
    value: Any = None
    """The result of a completed job; else None."""
    error: Exception | None = None
    """Why there is no result: JobFailed, JobCancelled or NotFound; Invalid if the result does not match the
    task's return type, or is large and no `large_payloads` are set; PayloadLost or Unavailable if a large
    result could not be read. Else None.
    """
