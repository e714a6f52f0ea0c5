"""Results of jobs: values or errors."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sublet.errors import JobCancelled, JobFailed, JobsError, NotFound
from sublet.model import FINISHED, Standing, State
from sublet.protocol.reads import attempt_from

T = TypeVar("T")


def load_json(result: bytes) -> Any:
    """Decode a job's result. Return None if it is empty."""
    return json.loads(result or b"null")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job's present state and, if it has ended, its result or error."""

    id: str
    state: State | None
    """None: no such job; `error` is NotFound."""
    value: Any = None
    """The result of a completed job."""
    error: Exception | None = None
    """JobFailed, JobCancelled or NotFound; Invalid if the result does not match its task; PayloadLost or
    Unavailable if its backend does not return a large one."""


def outcome_of(job_id: str, standing: Standing, decode: Callable[[bytes], Any]) -> Outcome:
    """Return a job's outcome."""
    if standing.state is not None and standing.state not in FINISHED:
        return Outcome(job_id, standing.state)
    try:
        return Outcome(job_id, standing.state, result_of(job_id, standing, decode, 0))
    except (JobsError, ValueError) as error:
        return Outcome(job_id, standing.state, error=error)


def unfinished(left: int, count: int, timeout: float) -> TimeoutError:
    """Return the error for jobs that have not ended in `timeout` seconds."""
    return TimeoutError(
        f"{left:,} of {count:,} jobs have not ended after {timeout:g} s; they go on: wait again"
    )


def result_of(job_id: str, standing: Standing, decode: Callable[[bytes], T], waited: float) -> T:
    """Return a job's result. Raises JobFailed, JobCancelled, NotFound or TimeoutError."""
    if standing.state is State.COMPLETED:
        return decode(standing.result)
    if standing.state is None:
        raise NotFound(f"no job {job_id}: it never existed, or its retention has passed")
    if standing.state not in FINISHED:
        raise TimeoutError(
            f"job {job_id} is still {standing.state} after {waited:g} s; it goes on: wait again"
        )
    last = attempt_from(0, standing.story) if standing.story else None
    message, detail = (last.message, last.detail) if last else ("", "")
    if standing.state is State.CANCELLED:
        raise JobCancelled(job_id, message, detail)
    raise JobFailed(job_id, last.code if last else "dead", message, detail)
