"""Erase finished jobs, for privacy."""

from typing import NamedTuple

from sublet.errors import Changed, NotFound, WrongState
from sublet.large_payloads.storage import HasStorage, is_reference, storage_of
from sublet.model import FINISHED, State
from sublet.protocol import keys, reads, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call

LOOKS = 5


class Erased(NamedTuple):
    """The id of an erased job, and the references, if any, to its large payload and result, for the caller to delete."""

    id: str
    references: tuple[bytes, ...] = ()


class _Seen(NamedTuple):
    state: State | None
    revision: int
    references: tuple[bytes, ...]


def _look(base: str, job_id: str) -> Call[_Seen]:
    def read(reply: list[bytes | None]) -> _Seen:
        state, attempt, ops, spec, *texts = reply
        texts.append((spec or b"").partition(b"\n")[2])
        known = reads.shown(state or b"")
        return _Seen(
            State(known) if known in set(State) else None,
            reads.number(attempt) + reads.number(ops),
            tuple(text for text in texts if text and is_reference(text)),
        )

    fields = ("state", "attempt", "ops", "spec", "payload", "result")
    return Call((("HMGET", keys.job(base, job_id), *fields),), read)


def erase(settings: HasStorage, base: str, job_id: str, revision: int | None, by: str = "") -> Plan[Erased]:
    """Delete one finished job. The caller deletes its large payload and result. Raises WrongState, NotFound, Changed;
    Invalid without storage for these.
    """
    for looks in range(LOOKS, 0, -1):
        seen: _Seen = yield _look(base, job_id)
        if not seen.state:
            raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
        if seen.state not in FINISHED:  # it may still get a result, which must not be left
            raise WrongState(
                f"job {job_id} is {seen.state}: erase takes one that is completed or dead or cancelled: cancel it first"
            )
        if seen.references:
            storage_of(settings, job_id)
        try:
            yield verbs.erase(base, job_id, seen.revision if revision is None else revision, by)
        except Changed:
            if looks == 1 or revision is not None:
                raise
        except NotFound:
            return Erased(job_id, seen.references)  # a repeat of this call found it erased
        else:
            return Erased(job_id, seen.references)
    raise AssertionError
