"""Results of jobs: values or errors."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from sublet.errors import JobCancelled, JobFailed, JobsError, NotFound
from sublet.model import FINISHED, Standing, State
from sublet.outcome import Outcome
from sublet.protocol.reads import attempt_from

T = TypeVar("T")


def load_json(result: bytes) -> Any:
    """Decode a result from JSON; return None for no bytes."""
    return json.loads(result or b"null")


def outcome_of(job_id: str, standing: Standing, decode: Callable[[bytes], Any]) -> Outcome:
    """Make an `Outcome` of a job's standing; `decode` turns the result's JSON into a value."""
    if standing.state is not None and standing.state not in FINISHED:
        return Outcome(job_id, standing.state)
    try:
        return Outcome(job_id, standing.state, result_of(job_id, standing, decode, 0))
    except (JobsError, ValueError) as error:
        return Outcome(job_id, standing.state, error=error)


def unfinished(left: int, count: int, timeout: float) -> TimeoutError:
    """Return a TimeoutError: `left` of `count` jobs have not ended in `timeout` seconds."""
    return TimeoutError(
        f"{left:,} of {count:,} jobs have not ended after {timeout:g} s; they go on: wait again"
    )


def result_of(job_id: str, standing: Standing, decode: Callable[[bytes], T], waited: float) -> T:
    """Return a job's result, decoded by `decode`. Raises JobFailed, JobCancelled, NotFound; if unfinished,
    TimeoutError, whose message has the `waited` seconds.
    """
    if standing.state is State.COMPLETED:
        return decode(standing.result)
    if standing.state is None:
        raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
    if standing.state not in FINISHED:
        raise TimeoutError(
            f"job {job_id} is still {standing.state} after {waited:g} s; it goes on: wait again"
        )
    has_run = standing.story[:1].isdigit()
    last = attempt_from(0, standing.story) if has_run else None
    message, detail = (last.message, last.detail) if last else ("", "")
    if standing.state is State.CANCELLED:
        code, _, words = ("" if has_run else standing.story).partition(" ")
        raise JobCancelled(job_id, message, detail, f"upstream {words}" if code == "upstream" else words)
    raise JobFailed(job_id, last.code if last else "dead", message, detail)
