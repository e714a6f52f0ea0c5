"""Schedules as they are kept in Redis, without I/O: the calls of their scripts, and the plan that fires what has come."""

import json
import logging
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
"""Schedules that one call picks, or fires."""
OCCURRENCES = 100
"""Occurrences that one call gives jobs."""
ROUNDS = 200
"""Calls that one firing makes at most; whoever comes next goes on."""


AGAIN = 60.0
"""Seconds between two words about a schedule that is left alone."""

_told: dict[str, float] = {}


def _leave(name: str, why: str) -> None:
    """Say of a schedule that it is left alone: once a minute at most, and what is stored of it not at all."""
    now = time.monotonic()
    if now - _told.get(name, -AGAIN) < AGAIN:
        return
    if len(_told) >= 1000:
        _told.clear()
    _told[name] = now
    log.warning("schedule %s %s, and is left alone", name, why)


class Pick(NamedTuple):
    """A schedule whose occurrence has come, and which is this caller's for 2 s."""

    name: str
    revision: str
    occurrence: int
    plan: bytes
    overlap: str


class Picked(NamedTuple):
    """What was picked, the moment (ms) by the server's clock, and whether there may be more."""

    now: int
    more: bool
    picks: list[Pick]


class Shot(NamedTuple):
    """What to do about a schedule that was picked."""

    pick: Pick
    occurrences: Sequence[int]
    """The occurrences that get a job, oldest first."""
    missed: int
    """How many occurrences are left out."""
    next: int | None
    """The occurrence after these."""
    due: int | None
    """When that is to be fired."""


class Fired(NamedTuple):
    """What a firing did: jobs that are there now, and occurrences that wait, as their queue is full or an earlier job is not over."""

    jobs: int
    waiting: int


def schedule(
    base: str, name: str, revision: int, *, was: str = "", plan: bytes, queue: str, task: str, rules: str,
    overlap: str, paused: bool, occurrence: int | None, due: int | None, payload: bytes,
) -> Call[str]:  # fmt: skip
    """Put a schedule, at the revision, and with the next occurrence, that was seen. `created` or `changed`; raises Changed."""
    return script("schedule").call(
        base, bytes.decode, name=name, revision=revision, was=was, plan=plan, queue=queue, task=task, rules=rules,
        overlap=overlap, paused=int(paused), occurrence=_said(occurrence), due=_said(due), payload=payload,
    )  # fmt: skip


def unschedule(base: str, name: str, revision: int, occurrence: str = "") -> Call[str]:
    """Remove a schedule, at the revision, and with the next occurrence, that was seen. `removed`; raises Changed or NotFound."""
    return script("schedule").call(
        base, bytes.decode, name=name, revision=revision, was=occurrence, plan="", queue="", task="", rules="", overlap="", paused="",
        occurrence="", due="", payload="",
    )  # fmt: skip


def pick(base: str, limit: int = PICKED) -> Call[Picked]:
    """Take up to `limit` (≤ 50) schedules whose occurrence has come; nobody else is given them for 2 s."""

    def read(reply: list[Any]) -> Picked:
        rows = [_row(reply[i : i + 5]) for i in range(2, len(reply), 5)]
        return Picked(int(reply[0]), bool(reply[1]), [one for one in rows if one])

    return script("pick").call(base, read, limit=limit)


def _row(row: Sequence[Any]) -> Pick | None:
    """What was picked; None for one that somebody has spoiled: the others do not wait for it."""
    name, revision, occurrence, plan, overlap = row
    try:
        return Pick(name.decode(), revision.decode(), int(occurrence), plan, overlap.decode())
    except ValueError:
        _leave(
            name[:80].decode("utf-8", "backslashreplace"),
            "is spoiled: its name, revision, occurrence or overlap is none",
        )
        return None


def fire(base: str, by: str, shots: Sequence[Shot]) -> Call[list[str]]:
    """Give occurrences their jobs, for up to 50 schedules and 100 occurrences. Per schedule what became of it."""
    rest: list[Any] = []
    for (name, revision, occurrence, _, _), occurrences, missed, after, due in shots:
        rest += [
            name,
            revision,
            occurrence,
            " ".join(map(str, occurrences)),
            missed,
            _said(after),
            _said(due),
        ]
    return script("fire").call(
        base, lambda reply: [word.decode("utf-8", "backslashreplace") for word in reply], rest, by=by
    )


def _said(moment: int | None) -> str:
    return "" if moment is None else str(moment)


def fire_due(bases: Sequence[str], by: str, admission: Admission | None = None) -> Plan[Fired]:
    """Fire what has come, in every partition. Any number may do so at once.

    Raises OutOfMemory, after the others had their turn, for a server that has no room: its occurrences wait, and come again in 2 s.
    """
    done, full = Fired(0, 0), None
    for base in bases:
        try:
            some = yield from _fire_in(base, by, admission)
        except OutOfMemory as error:
            full = full or error
        else:
            done = Fired(done.jobs + some.jobs, done.waiting + some.waiting)
    if full:
        raise full
    return done


def _fire_in(base: str, by: str, admission: Admission | None) -> Plan[Fired]:
    jobs = waiting = 0
    for _ in range(ROUNDS):
        picked: Picked = yield pick(base)
        shots = [shot for one in picked.picks if (shot := _shot(one, picked.now))]
        waiting += len(picked.picks) - len(shots)
        more = picked.more
        for some in _calls(shots):
            if admission and (full := (yield from admission.check(base, FIRING_BYTES))):
                raise full
            answers: list[str] = yield fire(base, by, some)
            words = [answer.partition(" ") for answer in answers]
            for shot, answer in zip(some, answers, strict=True):
                if answer.startswith("INVALID"):
                    _leave(shot.pick.name, f"cannot be fired ({answer.partition(' ')[2]})")
            jobs += sum(int(n) for word, _, n in words if word in ("fired", "skipped"))
            waiting += sum(word in ("held", "QUEUE_FULL", "INVALID") for word, _, _ in words)
            more = more or any(word == "later" for word, _, _ in words)
        if not more:
            break
    return Fired(jobs, waiting)


def _shot(pick: Pick, now: int) -> Shot | None:
    """What the plan of a schedule says to an occurrence that has come. None where this code cannot read it: newer code may."""
    try:
        recurrence = Recurrence.model_validate(json.loads(pick.plan)["when"])
        found = firing(recurrence, pick.name, pick.occurrence, now)
    except Exception as error:  # noqa: BLE001  # whatever it is: one that somebody has spoiled must not stop the others
        _leave(pick.name, f"cannot be read by this version of the code ({type(error).__name__})")
        return None
    after = found.next
    return Shot(
        pick,
        found.occurrences,
        found.missed,
        after.occurrence if after else None,
        after.due if after else None,
    )


def _calls(shots: Sequence[Shot]) -> list[list[Shot]]:
    """The shots in calls of at most 100 occurrences."""
    calls: list[list[Shot]] = []
    room = 0
    for shot in shots:
        if not calls or len(shot.occurrences) > room:
            calls.append([])
            room = OCCURRENCES
        calls[-1].append(shot)
        room -= len(shot.occurrences)
    return calls
