"""What the verbs of a lease's holder have in common: the lease that they name, and their answers, single or many."""

from collections.abc import Callable, Sequence
from typing import Any

from sublet.model import Ending, Lease
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem, item, json_reply, moved


def lease(job_id: str, token: str) -> Lease:
    """What is known of a lease by its holder's word alone: which job, and the proof. It is all that the scripts ask for."""
    return Lease(job_id, token, 0, 0, "", "", None, b"", "")


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
