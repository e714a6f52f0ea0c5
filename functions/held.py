"""What the verbs of a lease's holder have in common: the lease that they name, and their answers, single or many."""

from collections.abc import Callable, Sequence
from typing import Any

from functions.call import Call, Reply
from functions.reply import Problem, item, json_reply, moved
from jobs.errors import Invalid
from jobs.keys import is_id
from jobs.model import Ending, Lease


def lease(job_id: str, token: str) -> Lease:
    """What is known of a lease by its holder's word alone: which job, and the proof. It is all that the scripts ask for."""
    return Lease(job_id, token, 0, 0, "", "", None, b"", "")


def named(call: Call[Any, Any]) -> str:
    """The id in the path. Raises Invalid for one that cannot be."""
    job_id = call.words["id"]
    if not is_id(job_id):
        raise Invalid(f"id {job_id[:80]!r}: use 1 to 64 of A-Z a-z 0-9 _ . : -")
    return job_id


async def settle_one(call: Call[Any, Any], ending: Ending) -> Reply:
    """End one attempt. Raises Problem when the lease is lost, or the job unknown."""
    (word,) = await call.store.settle([ending])
    return json_reply(moved(ending.lease.id, word))


async def settle_all(call: Call[Any, Any], endings: Sequence[Ending]) -> Reply:
    """End many attempts, each on its own."""
    return lines([ending.lease.id for ending in endings], await call.store.settle(endings), moved)


def lines(ids: Sequence[str], words: Sequence[Any], say: Callable[[str, Any], dict[str, Any]]) -> Reply:
    """A batch's answer: per item what the single route would have said."""
    said = []
    for job_id, word in zip(ids, words, strict=True):
        try:
            said.append(item(job_id, say(job_id, word)))
        except Problem as problem:
            said.append(item(job_id, problem))
    return json_reply({"jobs": said})
