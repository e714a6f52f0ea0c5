"""Find a job by its own id, without the partition in front, or by the end of its id."""

from collections.abc import Collection, Sequence

from sublet.model import State
from sublet.protocol import keys, queue_names, reads
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

COMPARED = 1000
STRUCTURES = 1000
AT_ONCE = 10


def own_ids(bases: Sequence[str], own: str) -> Plan[list[str]]:
    """Return the ids `<partition>-<own>` of existing jobs."""
    found: list[str] = []
    for partition, base in enumerate(bases):
        job_id = f"{partition}-{own}"
        if keys.is_id(job_id):
            found += [job_id] if (yield _exists(base, job_id)) else []
    return found


def lost_in(base: str, job_id: str) -> Plan[str]:
    """Return the state, `queue:<name>` or `grouped:<name>` among the first 1,000 sorted sets, that has the id of a
    missing job; empty if none has, or the job exists.
    """
    if (yield _exists(base, job_id)):
        return ""
    known = yield from queue_names.names(base)
    names = [*keys.STRUCTURES, *(f"{kind}:{name}" for name in known for kind in ("queue", "grouped"))][
        :STRUCTURES
    ]
    found: list[str] = yield together(
        [("ZSCORE", keys.structure(base, name), job_id) for name in names],
        lambda reply: [name for name, score in zip(names, reply, strict=True) if score is not None],
    )
    return found[0] if found else ""


def _exists(base: str, job_id: str) -> Call[bool]:
    return Call((("HLEN", keys.job(base, job_id)),), bool)  # a reader may not call EXISTS


def last_ids(bases: Sequence[str], states: Collection[State]) -> Plan[tuple[set[str], bool]]:
    """Return the last 1,000 ids of each of up to 1,000 sorted sets of these states, and whether these are
    all.
    """
    found: set[str] = set()
    complete, left = True, STRUCTURES
    for base in bases:
        names = [state.value for state in states if state is not State.QUEUED]
        if State.QUEUED in states and left:
            known, more = yield from queue_names.page(base)
            complete &= not more
            names += [f"{kind}:{name}" for name in known for kind in ("queue", "grouped")]
        complete &= len(names) <= left
        names = names[:left]
        left -= len(names)
        for i in range(0, len(names), AT_ONCE):
            for ids in (yield reads.last_ids(base, names[i : i + AT_ONCE], COMPARED)):
                complete &= len(ids) < COMPARED
                found.update(ids)
    return found, complete
