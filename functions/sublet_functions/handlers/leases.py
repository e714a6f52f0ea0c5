"""Shared by the handlers of requests with a lease's token."""

from collections.abc import Callable, Sequence
from typing import Any

from sublet.errors import REFUSALS
from sublet.model import Ending, Lease
from sublet.protocol.reads import LAST
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response, json_response, timestamp


def lease(job_id: str, token: str) -> Lease:
    """Make a Lease that has only a job's id and token, since a client sends no more."""
    return Lease(job_id, token, 0, 0, "", "", None, b"", "")


async def settle_one(call: Call[Any, Any], ending: Ending) -> Response:
    """Report the outcome of one attempt; the response has the job's new state. Raises Problem for a refusal."""
    (word,) = await lease_answers(call, [ending.lease.id], await call.store.settle([ending]))
    return json_response(job_state(ending.lease.id, word))


async def settle_all(call: Call[Any, Any], endings: Sequence[Ending]) -> Response:
    """Report the outcomes of many attempts, each independently; the response is in their order."""
    ids = [ending.lease.id for ending in endings]
    words = await lease_answers(call, ids, await call.store.settle(endings))
    return batch_response(ids, words, job_state)


def job_state(job_id: str, word: str) -> dict[str, Any]:
    """Make a response's body from a script's reply: a state and, if scheduled, when the job is due (ms).
    Raises Problem for a refusal.
    """
    state, _, due = word.partition(" ")
    if state in REFUSALS:
        raise lease_problem(job_id, state)
    at = {"due_at": timestamp(float(due))} if due and int(due) < LAST else {}  # LAST: no limit
    return {"id": job_id, "state": state} | at


def lease_problem(job_id: str, code: str) -> Problem:
    """Return the problem for a refused call: `not-found` for NOT_FOUND, else `lease-lost`."""
    if code == "NOT_FOUND":
        return Problem(
            "not-found", f"job {job_id} never existed, or was deleted (retention, erase): stop working on it"
        )
    return Problem("lease-lost", f"job {job_id} has ended, or the lease has expired: stop working on it")


def batch_response(
    ids: Sequence[str], words: Sequence[Any], item: Callable[[str, Any], dict[str, Any]]
) -> Response:
    """Make the response for several jobs: for each, `item(id, word)` with status 200, or the problem that it raises."""
    items = []
    for job_id, word in zip(ids, words, strict=True):
        try:
            items.append({"id": job_id, "status": 200} | item(job_id, word))
        except Problem as problem:
            items.append(problem.as_item(job_id))
    return json_response({"jobs": items})
