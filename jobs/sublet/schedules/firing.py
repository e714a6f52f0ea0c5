"""The Redis calls for schedules, and the submission of due occurrences' jobs. Without I/O."""

import json
import logging
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sublet.errors import OutOfMemory
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, script
from sublet.schedules.recurrence import Recurrence, firing
from sublet.submission.admission import FIRING_BYTES, Admission

log = logging.getLogger(__name__)

PICKED = 50
OCCURRENCES = 100
ROUNDS = 200
"""Most rounds of `pick` and `fire` for a partition in one `fire_due`; the next call continues."""


UNREAD = 100
AGAIN = 60.0

Unread = dict[str, dict[str, str]]
"""Partition (key prefix) → name → revision of schedules whose recurrence this version cannot read."""

_warned_at: dict[str, float] = {}


def _warn_skipped(name: str, why: str) -> None:
    now = time.monotonic()
    if now - _warned_at.get(name, -AGAIN) < AGAIN:
        return
    if len(_warned_at) >= 1000:
        _warned_at.clear()
    _warned_at[name] = now
    log.warning("schedule %s is skipped: %s", name, why)


class Pick(NamedTuple):
    """A reserved schedule, with its due occurrence in ms since 1970."""

    name: str
    revision: str
    occurrence: int
    plan: bytes
    overlap: str


class Picked(NamedTuple):
    """The reply to a pick: the server's time (ms), whether more schedules may be due, and the reserved ones."""

    now: int
    more: bool
    picks: list[Pick]


class FireRequest(NamedTuple):
    """For a reserved schedule: the occurrences to submit jobs for, and the next one."""

    pick: Pick
    occurrences: Sequence[int]
    """The moments to submit a job for, in ms since 1970, the oldest first."""
    missed: int
    """How many due occurrences the misfire policy drops."""
    next: int | None
    """The occurrence after these; None: there is none. `due` is when its job is to be submitted. Both in ms."""
    due: int | None


class Fired(NamedTuple):
    """How many jobs were submitted, and how many schedules wait: for an earlier job, space in a queue, a
    repair, or a process whose version can read it.
    """

    jobs: int
    waiting: int


def schedule(
    base: str, name: str, revision: int, *, was: str = "", plan: bytes, queue: str, task: str, rules: str,
    overlap: str, paused: bool, occurrence: int | None, due: int | None, payload: bytes, by: str = "",
) -> Call[str]:  # fmt: skip
    """Store a schedule, `revision` being the one that was read (0: none exists); the reply is `created` or
    `changed`. Raises Changed if there is another revision, or another next occurrence than `was` (ms; empty: any).
    """
    return script("schedule").call(
        base, bytes.decode, name=name, revision=revision, was=was, plan=plan, queue=queue, task=task, rules=rules,
        overlap=overlap, paused=int(paused), occurrence=_ms(occurrence), due=_ms(due), payload=payload, by=by,
    )  # fmt: skip


def unschedule(base: str, name: str, revision: int, occurrence: str = "", by: str = "") -> Call[str]:
    """Remove a schedule; the reply is `removed`, also if it is gone. Raises Changed if it has another revision, or
    another next occurrence than `occurrence` (ms; empty: any); NotFound at revision 0 if there is none.
    """
    return script("schedule").call(
        base, bytes.decode, name=name, revision=revision, was=occurrence, plan="", queue="", task="", rules="", overlap="", paused="",
        occurrence="", due="", payload="", by=by,
    )  # fmt: skip


def pick(base: str, limit: int = PICKED, unread: Sequence[tuple[str, str]] = ()) -> Call[Picked]:
    """Reserve up to `limit` (≤ 50) schedules that are due: other callers do not get them for 2 s. `unread`:
    up to 100 (name, revision) to leave to other callers.
    """

    def read(reply: list[Any]) -> Picked:
        rows = [_row(reply[i : i + 5]) for i in range(2, len(reply), 5)]
        return Picked(int(reply[0]), bool(reply[1]), [one for one in rows if one])

    return script("pick").call(base, read, [word for one in unread for word in one], limit=limit)


def _row(row: Sequence[Any]) -> Pick | None:
    name, revision, occurrence, plan, overlap = row
    try:
        return Pick(name.decode(), revision.decode(), int(occurrence), plan, overlap.decode())
    except ValueError:
        _warn_skipped(
            name[:80].decode("utf-8", "backslashreplace"),
            "its stored name, revision, occurrence or overlap is invalid; remove it and add it again",
        )
        return None


def fire(base: str, by: str, requests: Sequence[FireRequest]) -> Call[list[str]]:
    """Submit the jobs of up to 50 schedules and 100 occurrences. Returns one answer per schedule, in which `n` is
    how many jobs were submitted.

    `fired <n>`: all; `skipped <n>`: the overlap policy dropped the others. If the others wait: `held <n>` (for the
    previous job), `later <n>` (for the next call, as this one has 1 MiB of payloads), `QUEUE_FULL …; fired <n>`.
    Not fired: `INVALID …`, `CHANGED`, `NOT_FOUND`.
    """
    rest: list[Any] = []
    for (name, revision, occurrence, _, _), occurrences, missed, after, due in requests:
        rest += [
            name,
            revision,
            occurrence,
            " ".join(map(str, occurrences)),
            missed,
            _ms(after),
            _ms(due),
        ]
    return script("fire").call(
        base, lambda reply: [word.decode("utf-8", "backslashreplace") for word in reply], rest, by=by
    )


def _ms(moment: int | None) -> str:
    return "" if moment is None else str(moment)


def fire_due(
    bases: Sequence[str], by: str, admission: Admission | None = None, unread: Unread | None = None
) -> Plan[Fired]:
    """Submit the jobs of due occurrences in these partitions; several processes may do so at once. Adds schedules
    that this version cannot read to `unread`, and leaves them to other processes. `by`: this process's name.

    Raises OutOfMemory at the end if, by Redis or `admission`, a server is full: a call after 2 s can fire its
    occurrences.
    """
    done, full = Fired(0, 0), None
    for base in bases:
        try:
            some = yield from _fire_in(base, by, admission, {} if unread is None else unread)
        except OutOfMemory as error:
            full = full or error
        else:
            done = Fired(done.jobs + some.jobs, done.waiting + some.waiting)
    if full:
        raise full
    return done


def _fire_in(base: str, by: str, admission: Admission | None, unread: Unread) -> Plan[Fired]:
    jobs = waiting = 0
    for _ in range(ROUNDS):
        known = unread.get(base, {})
        picked: Picked = yield pick(base, unread=list(known.items()))
        requests = []
        for one in picked.picks:
            if request := _request(one, picked.now):
                requests.append(request)
            else:
                known[one.name] = one.revision
        unread[base] = dict(list(known.items())[-UNREAD:])
        waiting += len(picked.picks) - len(requests)
        more = picked.more
        for some in _calls(requests):
            if admission and (full := (yield from admission.check(base, FIRING_BYTES))):
                raise full
            answers: list[str] = yield fire(base, by, some)
            words = [answer.partition(" ") for answer in answers]
            for request, answer in zip(some, answers, strict=True):
                if answer.startswith("INVALID"):
                    _warn_skipped(request.pick.name, f"it cannot be fired ({answer.partition(' ')[2]})")
            jobs += sum(map(_jobs_of, answers))
            waiting += sum(word in ("held", "QUEUE_FULL", "INVALID") for word, _, _ in words)
            more = more or any(word == "later" for word, _, _ in words)
        if not more:
            break
    return Fired(jobs, waiting)


def _jobs_of(answer: str) -> int:
    found = re.fullmatch(r"(?:fired|skipped|held|later|QUEUE_FULL .*; fired) (\d+)", answer)
    return int(found[1]) if found else 0


def _request(pick: Pick, now: int) -> FireRequest | None:
    try:
        recurrence = Recurrence.model_validate(json.loads(pick.plan)["when"])
        found = firing(recurrence, pick.name, pick.occurrence, now)
    except Exception as error:  # noqa: BLE001  # an invalid plan must not stop the others
        _warn_skipped(
            pick.name,
            f"this version of Sublet cannot read its recurrence ({type(error).__name__}): use a newer one, or store it again",
        )
        return None
    after = found.next
    return FireRequest(
        pick,
        found.occurrences,
        found.missed,
        after.occurrence if after else None,
        after.due if after else None,
    )


def _calls(requests: Sequence[FireRequest]) -> list[list[FireRequest]]:
    calls: list[list[FireRequest]] = []
    left = 0
    for request in requests:
        if not calls or len(request.occurrences) > left:
            calls.append([])
            left = OCCURRENCES
        calls[-1].append(request)
        left -= len(request.occurrences)
    return calls
