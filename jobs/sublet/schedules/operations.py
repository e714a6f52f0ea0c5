"""The schedules of a namespace: put, looked at, paused, run and brought in line with what code declares. Plans, without I/O.

A schedule lives in the partition of its queue, and is found by its name in any. The moment from which a schedule counts is
Redis's. Each plan may be sent again: what is so already is not done again.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sublet.errors import Changed, Invalid, NoNamespace, NotFound, Unfit
from sublet.model import Submission, Submitted
from sublet.operations.operations import LOOKS, Operations
from sublet.protocol import server_info
from sublet.protocol.plan import Plan
from sublet.protocol.reads import SPOILED
from sublet.protocol.scripts import Call
from sublet.schedules.definition import (
    NewSchedule,
    Schedule,
    Stored,
    check_name,
    in_ms,
    names,
    schedule_from,
    stored,
    summaries,
)
from sublet.schedules.durations import EPOCH, MS
from sublet.schedules.firing import ARRIVES, schedule, unschedule
from sublet.schedules.moves import again, arrives, find_all, keeps_time, settle, shown
from sublet.schedules.recurrence import first

PAGE = 200
"""Schedules that are read in one round trip."""

Decide = Callable[[Stored | None, int], Call[str] | None]
"""Makes of what is there, and of the moment, the call that changes it; None where all is so already."""


class Some(NamedTuple):
    """Some schedules of a list, and the name after which it goes on; None where that was all."""

    schedules: list[Schedule]
    cursor: str | None


class Synced(NamedTuple):
    """What became of one schedule that code declares, or once did: `created`, `changed`, `unchanged` or `removed`."""

    name: str
    answer: str
    before: str | None = None
    """Whose it was before, where that was another's: empty for somebody's who put it by hand."""

    @property
    def is_taken(self) -> bool:
        """Has it been taken over, and changed?"""
        return self.before is not None and self.answer != "unchanged"


def get(operations: Operations, name: str) -> Plan[Schedule]:
    """One schedule, with its next runs. Raises Invalid for a name that cannot be, NotFound for one that is not there."""
    one = yield from find(operations, name)
    now = yield from _now()
    try:
        return schedule_from(one, now)
    except SPOILED as error:
        raise Unfit(
            f"somebody else has written to schedule {name}: {type(error).__name__} in what is stored of it"
        ) from None


def known(operations: Operations) -> Plan[list[tuple[str, str]]]:
    """The names of all schedules, sorted, each with its base."""
    found: list[tuple[str, str]] = []
    for base in operations.bases:
        found += [(name, base) for name in (yield names(base))]
    return sorted(found)


def page(operations: Operations, after: str = "", most: int | None = None) -> Plan[Some]:
    """The schedules by name, without payloads: those that come after a name, all or at most so many."""
    left = [one for one in (yield from known(operations)) if one[0] > after]
    found = left[:most]
    read: list[Stored] = []
    for base in operations.bases:
        read += yield from _read(base, [name for name, of in found if of == base], summaries)
    return Some(list(_readable(shown(read))), found[-1][0] if len(found) < len(left) else None)


def _readable(found: Iterable[Stored]) -> Iterable[Schedule]:
    for one in found:
        try:
            yield schedule_from(one)
        except SPOILED:  # `get` says so of the one; it must not keep the others from being seen
            continue


def put(operations: Operations, wanted: NewSchedule) -> Plan[str]:
    """Have a schedule be as is wanted: `created`, `changed`, or `unchanged` where it is so already.

    One whose times are others counts from now on; if they stay, its next occurrence stays, too. One that is paused stays so.
    Raises Invalid for a name that cannot be, for what is too large, and for times of which none is to come.
    """
    if wanted.recurrence.end is not None:
        yield from _check_end(operations, wanted, wanted.recurrence.end)
    return (yield from _put(operations, wanted))


def _check_end(operations: Operations, wanted: NewSchedule, end: datetime) -> Plan[None]:
    """Raise Invalid where there is no occurrence from now on, unless the schedule is there with these times, and so has ended since."""
    now = yield from _now()
    if first(wanted.recurrence, wanted.name, now) is not None:
        return
    for base in operations.bases:
        if any(keeps_time(wanted, one) for one in (yield stored(base, [wanted.name]))):
            return
    later = first(wanted.recurrence.model_copy(update={"end": None}), wanted.name, now)
    why = (
        "that has passed"
        if in_ms(end) <= now or later is None
        else f"the next is {EPOCH + later.occurrence * MS:%Y-%m-%d %H:%M:%S}Z"
    )
    raise Invalid(f"end: there is no occurrence before its end, {end:%Y-%m-%d %H:%M:%S}Z: {why}")


def _put(operations: Operations, wanted: NewSchedule) -> Plan[str]:
    home, many = operations.of_queue(wanted.queue), len(operations.bases) > 1
    for _ in range(LOOKS):  # once more where somebody has removed it, or moved it to and fro, meanwhile
        before = (yield from settle(operations.bases, wanted.name)) if many else None

        def decide(seen: Stored | None, now: int, before: Stored | None = before) -> Call[str] | None:
            moved = before if before and before.base != home else None
            if seen and not moved and _is_so(wanted, seen):
                return None
            if before and not (seen or moved):
                raise NotFound(
                    wanted.name
                )  # it was here a moment ago: to make it anew would forget its occurrence
            return _call(home, wanted, seen, moved, now, alone=not many)

        try:
            answer: str = yield from _change(operations, home, wanted.name, decide)
        except NotFound:
            continue
        if not many or (yield from settle(operations.bases, wanted.name)):
            return "changed" if before and answer == "created" else answer
    raise Changed(f"schedule {wanted.name} is removed by others all the while: try again")


def _call(
    home: str, wanted: NewSchedule, seen: Stored | None, moved: Stored | None, now: int, *, alone: bool
) -> Call[str]:
    """The call that stores a schedule: with its next occurrence if its times stay; to arrive if it comes to one of many partitions."""
    before, comes = seen or moved, not alone and (moved or not seen)
    kept = before.text("occurrence") if before and keeps_time(wanted, before) else ""
    paused = before is not None and before.paused
    found = None if paused else first(wanted.recurrence, wanted.name, int(kept) - 1 if kept else now)
    if before and not wanted.source:  # who changes by hand what code has put does not take it over
        wanted = wanted._replace(source=before.source)
    return schedule(
        home, wanted.name, seen.revision if seen else 0, elsewhere=moved.revision if moved and not seen else 0,
        was=seen.text("occurrence") if seen else "", plan=wanted.plan[:-1] + (ARRIVES if comes else b"}"), queue=wanted.queue,
        task=wanted.task, rules=wanted.rules, overlap=wanted.recurrence.overlap, paused=paused,
        occurrence=found.occurrence if found else None, due=found.due if found else None, payload=wanted.payload,
    )  # fmt: skip


def _is_so(wanted: NewSchedule, seen: Stored) -> bool:
    """Is what is there what is wanted? Whose code has it is of no account, unless it was nobody's."""
    same = (seen.text("queue"), seen.text("task"), seen.text("rules")) == (
        wanted.queue,
        wanted.task,
        wanted.rules,
    )
    other = arrives(seen) or (wanted.source != "" and seen.source == "")
    return same and not other and seen.fields.get("payload") == wanted.payload and keeps_time(wanted, seen)


def remove(operations: Operations, name: str) -> Plan[bool]:
    """Have a schedule be no more; jobs that it has made stay. False if there was none. Raises Invalid."""
    check_name(name)
    gone = False
    for _ in range(LOOKS):  # once more where it has moved meanwhile
        found = yield from find_all(operations.bases, name)
        if not found:
            return gone
        for one in found:
            gone = (yield from _take_away(operations, one.base, name)) is not None or gone
    raise Changed(f"schedule {name} is put by others all the while: try again")


def pause(operations: Operations, name: str) -> Plan[str]:
    """Make no more jobs of a schedule until it is resumed: `paused`. Raises Invalid or NotFound."""
    yield from _set(operations, name, paused=True)
    return "paused"


def resume(operations: Operations, name: str) -> Plan[str]:
    """Go on with a schedule, from now on: `resumed`. Occurrences that came meanwhile are none. Raises Invalid or NotFound."""
    yield from _set(operations, name, paused=False)
    return "resumed"


def _set(operations: Operations, name: str, *, paused: bool) -> Plan[None]:
    check_name(name)
    for _ in range(LOOKS):  # once more where it has moved meanwhile
        one = yield from settle(operations.bases, name)
        if one is None:
            raise NotFound(f"no schedule {name}")
        if one.paused == paused:
            return
        now = yield from _now()
        with contextlib.suppress(Changed):
            yield _stopped(one, None if paused else now)
            return
    raise Changed(f"schedule {name} is changed by others all the while: try again")


def _stopped(one: Stored, now: int | None) -> Call[str]:
    """The call that stops a schedule as it is, or lets it go on from a moment. Raises Invalid if its plan cannot be read here."""
    found = None if now is None else first(one.recurrence, one.name, now)
    occurrence, due = (found.occurrence, found.due) if found else (None, None)
    return again(one, one.fields["plan"], was="", paused=now is None, occurrence=occurrence, due=due)


def run(operations: Operations, name: str, job_id: str | None = None, rules: str = "") -> Plan[Submitted]:
    """Submit one job of a schedule now, beside its occurrences; the same `job_id` again is the same job. Raises Invalid or NotFound."""
    one = yield from find(operations, name)
    (submitted,) = yield from operations.submit([job_of(operations, one, job_id, rules)])
    return submitted


def job_of(operations: Operations, one: Stored, job_id: str | None, rules: str = "") -> Submission:
    """The job that a schedule makes now."""
    words = " ".join(filter(None, [one.text("rules"), f"schedule={one.name}", rules]))
    return operations.submission(
        one.text("task"), one.fields.get("payload", b""), one.text("queue"), words, job_id
    )


def find(operations: Operations, name: str) -> Plan[Stored]:
    """A schedule as it is stored. Raises Invalid for a name that cannot be, NotFound for one that is not there."""
    check_name(name)
    found = yield from find_all(operations.bases, name)
    if not found:
        raise NotFound(f"no schedule {name}")
    return shown(found)[0]


def sync(
    operations: Operations, wanted: Sequence[NewSchedule], source: str = "", remove: bool = False
) -> Plan[list[Synced]]:
    """Have the schedules be as code declares them, and say per name what became of it; the same again writes nothing.

    What others have put stays, unless it has the name of one of these. With `remove`, those that this source once had and has
    no more are removed. Raises Invalid before anything is written, if one of them cannot be.
    """
    if remove and not source:
        raise Invalid("remove: say whose schedules are to go (source)")
    mine = {one.name: one._replace(source=source) for one in wanted}
    there: dict[str, list[Stored]] = {}
    for base in operations.bases:
        there_are = yield names(base)
        for one in (yield from _read(base, [name for name in there_are if name in mine], stored)):
            there.setdefault(one.name, []).append(one)
        for one in (
            (yield from _read(base, [name for name in there_are if name not in mine], summaries))
            if remove
            else ()
        ):
            if one.source == source:
                there.setdefault(one.name, []).append(one)
    answers = []
    for name, wished in mine.items():
        found = there.pop(name, [])
        before = found[0].source if found and found[0].source != source else None
        is_so = (
            len(found) == 1
            and found[0].base == operations.of_queue(wished.queue)
            and _is_so(wished, found[0])
        )
        answers.append(Synced(name, "unchanged" if is_so else (yield from _put(operations, wished)), before))
    for name, found in sorted(there.items()):
        for one in found:
            yield from _take_away(operations, one.base, name, source)
        answers.append(Synced(name, "removed"))
    return answers


def _read(
    base: str, wanted: Sequence[str], how: Callable[[str, Sequence[str]], Call[list[Stored]]]
) -> Plan[list[Stored]]:
    found: list[Stored] = []
    for i in range(0, len(wanted), PAGE):
        found += yield how(base, wanted[i : i + PAGE])
    return found


def _now() -> Plan[int]:
    now: datetime = yield server_info.clock()
    return in_ms(now)


def _change(operations: Operations, base: str, name: str, decide: Decide) -> Plan[str]:
    """Look at a schedule, change it as seen, and look again if somebody else was faster. `unchanged` where all is so already."""
    for looks in range(LOOKS, 0, -1):
        found = yield stored(base, [name])
        call = decide(found[0] if found else None, (yield from _now()))
        if call is None:
            break
        try:
            answer: str = yield call
            return answer
        except (Changed, NotFound):
            if looks == 1:
                raise
        except NoNamespace:
            if looks == 1:
                raise
            yield from operations.prepare()
    return "unchanged"


def _take_away(
    operations: Operations, base: str, name: str, source: str | None = None
) -> Plan[Stored | None]:
    """Remove a schedule from a partition, if it is this source's. What was there; None for nothing."""
    taken: Stored | None = None

    def decide(seen: Stored | None, now: int) -> Call[str] | None:
        nonlocal taken
        taken = seen if seen and source in (None, seen.source) else None
        return unschedule(base, name, seen.revision, seen.text("occurrence")) if seen and taken else None

    yield from _change(operations, base, name, decide)
    return taken
