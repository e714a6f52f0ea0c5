"""A schedule in the partition where it is to be: how it moves there, and how what a crash or a race left is mended. Without I/O.

The new one is put first, as one that arrives: a note in its plan says so, and nobody fires it. Then the old one is removed, as
it was seen, and then the note. Whoever finds one that arrives finishes its move; nobody undoes it, so that there is always one.
Of two that fire, as two put them at the same moment, the one in the first partition stays.
"""

from collections.abc import Sequence

from jobs.errors import Changed, Invalid, NotFound
from jobs.recurring import Stored, stored
from jobs.schedule import first
from jobs.schedules import ARRIVES, schedule, unschedule
from jobs.scripts import Call
from jobs.transport import Plan

STEPS = 20
"""Steps of one settling: each removes one, or changes one."""


def arrives(one: Stored) -> bool:
    """Is the move to where this is not finished?"""
    return one.fields.get("plan", b"").endswith(ARRIVES)


def shown(found: Sequence[Stored]) -> list[Stored]:
    """Of each name the one that counts: one that has arrived, in the first partition."""
    ranked = sorted(found, key=lambda one: (one.name, arrives(one)))
    return [one for before, one in zip([None, *ranked], ranked, strict=False) if before is None or before.name != one.name]


def settle(bases: Sequence[str], name: str) -> Plan[Stored | None]:
    """Have a schedule be in one partition, with its move finished. What is there then; None for nothing. Raises Changed."""
    for _ in range(STEPS):
        found: list[Stored] = []
        for base in bases:
            found += yield stored(base, [name])
        call = _step([one for one in found if arrives(one)], [one for one in found if not arrives(one)])
        if call is None:
            return found[0] if found else None
        try:
            yield call
        except (Changed, NotFound):  # somebody was faster: look again
            continue
    raise Changed(f"schedule {name} is changed by others all the while: try again")


def _step(coming: Sequence[Stored], there: Sequence[Stored]) -> Call[str] | None:
    """The next step towards one schedule; None where that is all."""
    if coming and there:
        return _as_old(coming[0], there[0]) or _remove(there[0])
    if coming:
        plan = coming[0].fields["plan"].removesuffix(ARRIVES) + b"}"
        return _again(coming[0], plan, coming[0])
    return _remove(there[-1]) if len(there) > 1 else None


def _remove(one: Stored) -> Call[str]:
    return unschedule(one.base, one.name, one.revision, one.text("slot"))


def _as_old(new: Stored, old: Stored) -> Call[str] | None:
    """The call that has the new one be paused, and at the slot, as the old one is by now; None where it is."""
    if (new.paused and old.paused) or not (old.text("slot") or "0").isdigit():
        return None
    is_at = (new.paused, new.text("slot")) == (old.paused, old.text("slot"))
    behind = old.paused or (not is_at and _keep_time(new, old))
    return _again(new, new.fields["plan"], old) if behind else None


def _keep_time(new: Stored, old: Stored) -> bool:
    try:
        return new.recurrence == old.recurrence
    except Invalid:
        return False


def _again(one: Stored, plan: bytes, at: Stored) -> Call[str]:
    """The call that puts one as it is, but for its plan, and for how far `at` is."""
    slot = at.text("slot")
    return schedule(
        one.base, one.name, one.revision, plan=plan, queue=one.text("queue"), task=one.text("task"), rules=one.text("rules"),
        overlap=one.text("overlap"), paused=at.paused, slot=int(slot) if slot else None,
        due=_due(one, slot) if slot else None, payload=one.fields.get("payload", b""),
    )  # fmt: skip


def _due(one: Stored, slot: str) -> int:
    """When a slot is to be fired. Its score does not say so: that of one that was picked is later."""
    try:
        found = first(one.recurrence, one.name, int(slot) - 1)
    except Invalid:
        found = None
    return found.due if found else int(slot)
