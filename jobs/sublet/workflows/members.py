"""Read the members of a workflow, in pages."""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from sublet.errors import NotFound
from sublet.model import State
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call

ENDED_AS = {State.COMPLETED: 1, State.DEAD: 2, State.CANCELLED: 3}
"""The score of members that ended in this state; unfinished members have 0."""
STRUCTURE = "members:"
LOOKS = 5


def sections(base: str, workflow_id: str, states: Iterable[State]) -> list[tuple[str, str]]:
    """Return the sections with the members in these states: pairs of base and `members:<score>:<workflow>`.
    One section has all unfinished members.
    """
    scores = dict.fromkeys(ENDED_AS.get(state, 0) for state in states)
    return [(base, f"{STRUCTURE}{score}:{workflow_id}") for score in scores]


def page(base: str, structure: str, after: str, count: int) -> Plan[list[str]]:
    """Return the sorted ids of up to `count` members of a section (`structure`) behind the id `after` (empty:
    the first). If some leave it meanwhile, no others are skipped.
    """
    _, score, workflow_id = structure.split(":", 2)
    key, start, found = keys.members(base, workflow_id), 0, list[str]()
    for _ in range(LOOKS):
        start = (yield from _rank(key, score, after)) if after else 0
        command = ("ZRANGE", key, score, score, "BYSCORE", "LIMIT", max(0, start - 1), count + 1)
        found = yield Call((command,), lambda reply: [shown(one) for one in reply])
        if not start or (found and found[0] <= after):
            break
    return [one for one in found if one > after][:count]


def _rank(key: str, score: str, after: str) -> Plan[int]:
    commands = (
        ("ZSCORE", key, after),
        ("ZRANK", key, after),
        ("ZCOUNT", key, "-inf", f"({score}"),
        ("ZCOUNT", key, score, score),
    )
    held, rank, before, most = yield Call(commands, list)
    if held is not None and float(held) == float(score):
        return max(0, int(rank) - int(before) + 1)
    least, most = 0, int(most)
    while least < most:
        middle = (least + most) // 2
        command = ("ZRANGE", key, score, score, "BYSCORE", "LIMIT", middle, 1)
        one: list[str] = yield Call((command,), lambda reply: [shown(each) for each in reply])
        least, most = (middle + 1, most) if one and one[0] <= after else (least, middle)
    return least


def state(base: str, workflow_id: str) -> Call[str]:
    """Read a workflow's state: `open`, `sealed` or `cancelled`. Raises NotFound."""

    def read(reply: bytes | None) -> str:
        return shown(reply) if reply else unknown(workflow_id)

    return Call((("HGET", keys.workflow(base, workflow_id), "state"),), read)


def may_add(base: str, workflow_id: str, job_ids: Sequence[str]) -> Call[bool]:
    """Read whether the workflow is not stored, or all these jobs are its members."""
    key = keys.members(base, workflow_id)
    commands = (("HLEN", keys.workflow(base, workflow_id)), ("ZMSCORE", key, *job_ids))
    return together(commands, lambda reply: not reply[0] or None not in reply[1])


def unknown(workflow_id: str) -> NoReturn:
    """Raise NotFound for this workflow."""
    raise NotFound(f"no workflow {workflow_id}: it never existed, or ended over 14 days ago")


def brought_back(base: str, job_ids: Sequence[str]) -> Plan[set[str]]:
    """Return those of these jobs that were cancelled by the end of an upstream that exists, whose retry makes
    them wait again, or because their workflow was never sealed.
    """
    causes: list[str] = yield _fields(base, job_ids, "cause")
    by_job = {job_id: cause for job_id, cause in zip(job_ids, causes, strict=True) if cause}
    jobs = [cause for cause in dict.fromkeys(by_job.values()) if not cause.startswith("/")]
    states: list[str] = (yield _fields(base, jobs, "state")) if jobs else []
    there = {cause for cause, state in zip(jobs, states, strict=True) if state}
    return {job_id for job_id, cause in by_job.items() if cause in there or cause.startswith("/")}


def _fields(base: str, job_ids: Sequence[str], name: str) -> Call[list[str]]:
    def read(reply: Sequence[Any]) -> list[str]:
        return [shown(value or b"") for value in reply]

    return together([("HGET", keys.job(base, job_id), name) for job_id in job_ids], read)
