"""A schedule in the partition where it is to be: how it moves there, and how what a crash or a race left is mended. Without I/O.

The new one is put first, as one that arrives: a note in its plan says so, and nobody fires it. (So is one that is new
altogether where there are several partitions: another host may be putting it elsewhere.) Then the old one is removed, as it was
seen, and then the note. Whoever finds one that arrives finishes its move; nobody undoes it, so that there is always one. Of two
that fire, as two put them at the same moment, the one in the first partition stays.

Who removes one of two has first put the other as it is, at the revision that was seen: so it was there, and whoever has the
same in mind the other way round is told that it changed. No revision of a name comes again, for one that moves goes on
counting, and so does one that is put after a removal.
"""

from collections.abc import Sequence

from sublet.errors import Changed, Invalid, NotFound
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.schedules.definition import NewSchedule, Stored, stored
from sublet.schedules.firing import ARRIVES, schedule, unschedule
from sublet.schedules.recurrence import first

STEPS = 20
"""Steps of one settling: each removes one, or changes one."""
LOOKS = 2
"""Looks at all partitions until a schedule counts as not there: one that moves may be seen in neither of two."""


def arrives(one: Stored) -> bool:
    """Is the move to where this is not finished?"""
    return one.fields.get("plan", b"").endswith(ARRIVES)


def shown(found: Sequence[Stored]) -> list[Stored]:
    """Of each name the one that counts: one that has arrived, in the first partition."""
    ranked = sorted(found, key=lambda one: (one.name, arrives(one)))
    return [
        one
        for before, one in zip([None, *ranked], ranked, strict=False)
        if before is None or before.name != one.name
    ]


def find_all(bases: Sequence[str], name: str) -> Plan[list[Stored]]:
    """The schedule of this name in each partition that has one: another than its own has one for a moment."""
    found: list[Stored] = []
    for _ in range(LOOKS):
        for base in bases:
            found += yield stored(base, [name])
        if found or len(bases) == 1:
            break
    return found


def settle(bases: Sequence[str], name: str) -> Plan[Stored | None]:
    """Have a schedule be in one partition, with its move finished. What is there then; None for nothing. Raises Changed."""
    for _ in range(STEPS):
        found = _furthest_first((yield from find_all(bases, name)))
        calls = _step([one for one in found if arrives(one)], [one for one in found if not arrives(one)])
        if not calls:
            return found[0] if found else None
        try:
            for call in calls:  # noqa: UP028  # a list takes no answers
                yield call
        except (Changed, NotFound):  # somebody was faster: look again
            continue
    raise Changed(f"schedule {name} is changed by others all the while: try again")


def _furthest_first(found: list[Stored]) -> list[Stored]:
    """So that none is fired again that the other has fired; as they lie where one is paused, or equally far."""
    occurrences = [one.text("occurrence") for one in found]
    if not all(map(str.isdigit, occurrences)):
        return found
    return sorted(found, key=lambda one: -int(one.text("occurrence")))


def _step(coming: Sequence[Stored], there: Sequence[Stored]) -> list[Call[str]]:
    """The next step towards one schedule; nothing where that is all."""
    if coming and there:
        behind = _as_old(coming[0], there[0])
        return [behind] if behind else [_as_it_is(coming[0]), _remove(there[0])]
    if coming:
        plan = coming[0].fields["plan"].removesuffix(ARRIVES) + b"}"
        return [_again(coming[0], plan, coming[0])]
    return [_as_it_is(there[0]), _remove(there[-1])] if len(there) > 1 else []


def _as_it_is(one: Stored) -> Call[str]:
    return _again(one, one.fields["plan"], one)


def _remove(one: Stored) -> Call[str]:
    return unschedule(one.base, one.name, one.revision, one.text("occurrence"))


def _as_old(new: Stored, old: Stored) -> Call[str] | None:
    """The call that has the new one be paused, and as far, as the old one is by now; None where it is. It never goes back."""
    is_at, at = new.text("occurrence"), old.text("occurrence")
    if old.paused or (at.isdigit() and keeps_time(new, old)):
        behind = old.paused != new.paused or (not old.paused and int(is_at or 0) < int(at))
        return _again(new, new.fields["plan"], old) if behind else None
    if not at.isdigit() or not (new.paused or (is_at.isdigit() and int(is_at) < int(at))):
        return None
    try:  # its own times, from there on
        found = first(new.recurrence, new.name, int(at) - 1)
    except Invalid:
        return None
    occurrence, due = (found.occurrence, found.due) if found else (None, None)
    return again(new, new.fields["plan"], was=is_at, paused=False, occurrence=occurrence, due=due)


def keeps_time(new: Stored | NewSchedule, old: Stored) -> bool:
    """Has it the times that it had? Not, where somebody has spoiled them."""
    try:
        return new.recurrence == old.recurrence
    except Invalid:
        return False


def again(
    one: Stored, plan: bytes, *, was: str, paused: bool, occurrence: int | None, due: int | None
) -> Call[str]:
    """The call that puts one as it is, but for these."""
    return schedule(
        one.base, one.name, one.revision, was=was, plan=plan, queue=one.text("queue"), task=one.text("task"),
        rules=one.text("rules"), overlap=one.text("overlap"), paused=paused, occurrence=occurrence, due=due,
        payload=one.fields.get("payload", b""),
    )  # fmt: skip


def _again(one: Stored, plan: bytes, at: Stored) -> Call[str]:
    """The call that puts one as it is, but for its plan, and for how far `at` is."""
    occurrence = at.text("occurrence")
    due = _due(one, occurrence) if occurrence else None
    return again(
        one,
        plan,
        was=one.text("occurrence"),
        paused=at.paused,
        occurrence=int(occurrence) if occurrence else None,
        due=due,
    )


def _due(one: Stored, occurrence: str) -> int:
    """When an occurrence is to be fired. Its score does not say so: that of one that was picked is later."""
    try:
        found = first(one.recurrence, one.name, int(occurrence) - 1)
    except Invalid:
        found = None
    return found.due if found else int(occurrence)
