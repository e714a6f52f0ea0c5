"""Operations on schedules, as plans without I/O.

A schedule stays in the partition of its queue; by name it is searched in all. Times count by the server's
clock. An operation may be repeated, `run` only with a `job_id`."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from sublet.errors import Changed, Invalid, NoNamespace, NotFound, Unfit, WrongState
from sublet.model import Submission, Submitted
from sublet.protocol import audit_log, server_info
from sublet.protocol.person import person
from sublet.protocol.plan import Plan
from sublet.protocol.reads import MALFORMED
from sublet.protocol.scripts import Call
from sublet.schedules.definition import (
    NewSchedule,
    Schedule,
    Stored,
    at_now,
    check_name,
    in_ms,
    names,
    schedule_from,
    stored,
    summaries,
)
from sublet.schedules.durations import EPOCH, MS
from sublet.schedules.firing import schedule, unschedule
from sublet.schedules.recurrence import first
from sublet.submission.submit import SubmitOperations

PAGE = 200
ATTEMPTS = 5

Decide = Callable[[Stored | None, int], Call[str] | None]
"""Gets the stored schedule (None: missing) and the server's time (ms); returns the call that
changes it, or None."""
Guard = Callable[[Stored], None]
"""Raises an error if the caller may not change the schedule."""


def permit(seen: Stored) -> None:
    """A guard that lets every schedule be changed."""


class SchedulePage(NamedTuple):
    """Some schedules, sorted by name, and the name after which the list continues; None at its end."""

    schedules: list[Schedule]
    cursor: str | None


class Synced(NamedTuple):
    """What `sync` did with one schedule: `answer` is `created`, `changed`, `unchanged` or `removed`."""

    name: str
    answer: str
    before: str | None = None
    """The schedule's previous owner if it was another (empty: none, it was stored by a call); else None."""

    @property
    def is_taken(self) -> bool:
        """Whether this call took it over, from another owner or from none."""
        return self.before is not None and self.answer != "unchanged"


def get(operations: SubmitOperations, name: str) -> Plan[Schedule]:
    """Return one schedule with its next occurrences and last jobs. Raises Invalid, NotFound; Unfit for
    malformed data."""
    one = yield from find(operations, name)
    now, runs = yield at_now(one)
    try:
        return schedule_from(one, now).model_copy(update={"last_runs": runs})
    except MALFORMED as error:
        raise Unfit(
            f"schedule {name} is stored in an invalid form ({type(error).__name__}): Sublet did not write it; remove it"
        ) from None


def find(operations: SubmitOperations, name: str) -> Plan[Stored]:
    """Return one schedule as it is stored. Raises Invalid or NotFound."""
    check_name(name)
    found = yield from _find_all(operations.bases, name)
    if not found:
        raise NotFound(f"no schedule {name}")
    return found[0]


def known(operations: SubmitOperations) -> Plan[list[tuple[str, str]]]:
    """Return the name of each schedule and its partition's key prefix, sorted by name."""
    found: list[tuple[str, str]] = []
    for base in operations.bases:
        found += [(name, base) for name in (yield names(base))]
    return sorted(found)


def page(operations: SubmitOperations, after: str = "", most: int | None = None) -> Plan[SchedulePage]:
    """Return up to `most` schedules (None: all) whose names sort behind `after`, without payloads.
    Invalid ones are left out, so a page may have fewer although others follow.
    """
    left = [one for one in (yield from known(operations)) if one[0] > after]
    found = left[:most]
    read: dict[str, Stored] = {}
    for base in operations.bases:
        for one in (yield from _read(base, [name for name, of in found if of == base], summaries)):
            read.setdefault(one.name, one)
    ordered = [read[name] for name in sorted(read)]
    return SchedulePage(list(_readable(ordered)), found[-1][0] if len(found) < len(left) else None)


def _readable(found: Iterable[Stored]) -> Iterator[Schedule]:
    for one in found:
        try:
            yield schedule_from(one)
        except MALFORMED:  # `get` raises its error
            continue


def put(operations: SubmitOperations, wanted: NewSchedule, guard: Guard = permit) -> Plan[str]:
    """Store a schedule; the result is `created`, `changed` or `unchanged`.

    With a new recurrence, occurrences count from now; with the same one, the next occurrence stays. A paused
    schedule stays paused. Raises Invalid, also if a new recurrence has no occurrence left; Changed;
    WrongState if it exists in another partition than that of its queue."""
    if wanted.recurrence.end is not None:
        yield from _check_end(operations, wanted, wanted.recurrence.end)
    return (yield from _put(operations, wanted, guard))


def _check_end(operations: SubmitOperations, wanted: NewSchedule, end: datetime) -> Plan[None]:
    now = yield from _now()
    if first(wanted.recurrence, wanted.name, now) is not None:
        return
    for one in (yield stored(operations.base_of_queue(wanted.queue), [wanted.name])):
        if _has_same_times(wanted, one):
            return
    later = first(wanted.recurrence.model_copy(update={"end": None}), wanted.name, now)
    why = (
        "the end has passed"
        if in_ms(end) <= now or later is None
        else f"the next would be {EPOCH + later.occurrence * MS:%Y-%m-%d %H:%M:%S}Z"
    )
    raise Invalid(f"end: there is no occurrence before its end, {end:%Y-%m-%d %H:%M:%S}Z: {why}")


def _put(operations: SubmitOperations, wanted: NewSchedule, guard: Guard = permit) -> Plan[str]:
    home = operations.base_of_queue(wanted.queue)

    def decide(seen: Stored | None, now: int) -> Call[str] | None:
        if seen:
            guard(seen)
        return None if seen and _is_as_wanted(wanted, seen) else _call(home, wanted, seen, now)

    yield from _check_partition(operations, wanted, guard)
    answer: str = yield from _change(operations, home, wanted.name, decide)
    if answer == "created":  # another client may have created it elsewhere
        yield from _check_partition(operations, wanted, guard)
    return answer


def _check_partition(operations: SubmitOperations, wanted: NewSchedule, guard: Guard) -> Plan[None]:
    if len(operations.bases) > 1:
        one = yield from _find_one(operations.bases, wanted.name)
        if one:
            guard(one)
        if one and one.base != operations.base_of_queue(wanted.queue):
            raise WrongState(_other_partition(wanted, one))


def _other_partition(wanted: NewSchedule, one: Stored) -> str:
    return (
        f"schedule {wanted.name} is in the partition of queue {one.text('queue')}, and queue {wanted.queue} is in another: "
        "a schedule does not move between partitions; remove it and add it again"
    )


def _call(home: str, wanted: NewSchedule, seen: Stored | None, now: int) -> Call[str]:
    kept = seen.text("occurrence") if seen and _has_same_times(wanted, seen) else ""
    paused = seen is not None and seen.paused
    found = None if paused else first(wanted.recurrence, wanted.name, int(kept) - 1 if kept else now)
    if seen and not wanted.source:  # a change by hand does not take it from the code that declares it
        wanted = wanted._replace(source=seen.source)
    return schedule(
        home, wanted.name, seen.revision if seen else 0, was=seen.text("occurrence") if seen else "", plan=wanted.plan,
        queue=wanted.queue, task=wanted.task, rules=wanted.rules, overlap=wanted.recurrence.overlap, paused=paused,
        occurrence=found.occurrence if found else None, due=found.due if found else None, payload=wanted.payload, by=person(),
    )  # fmt: skip


def _is_as_wanted(wanted: NewSchedule, seen: Stored) -> bool:
    same = (seen.text("queue"), seen.text("task"), seen.text("rules")) == (
        wanted.queue,
        wanted.task,
        wanted.rules,
    )
    same = same and wanted.source in ("", seen.source) and seen.fields.get("payload") == wanted.payload
    return same and _has_same_times(wanted, seen)


def _has_same_times(wanted: NewSchedule, seen: Stored) -> bool:
    try:
        return wanted.recurrence == seen.recurrence
    except Invalid:
        return False


def remove(operations: SubmitOperations, name: str, guard: Guard = permit) -> Plan[bool]:
    """Remove a schedule; its jobs stay. Returns whether it existed. Raises Invalid, Changed."""
    check_name(name)
    removed = False
    for base in operations.bases:
        removed = (yield from _remove_from(operations, base, name, guard=guard)) or removed
    return removed


def pause(operations: SubmitOperations, name: str, guard: Guard = permit) -> Plan[str]:
    """Pause a schedule: no more jobs until it is resumed. Returns `paused`. Raises Invalid, NotFound, Changed."""
    yield from _set_paused(operations, name, guard, paused=True)
    return "paused"


def resume(operations: SubmitOperations, name: str, guard: Guard = permit) -> Plan[str]:
    """Resume a schedule; the occurrences since its pause are not fired. Returns `resumed`. Raises Invalid,
    NotFound, Changed."""
    yield from _set_paused(operations, name, guard, paused=False)
    return "resumed"


def _set_paused(operations: SubmitOperations, name: str, guard: Guard, *, paused: bool) -> Plan[None]:
    check_name(name)
    for _ in range(ATTEMPTS):
        one = yield from _find_one(operations.bases, name)
        if one is None:
            raise NotFound(f"no schedule {name}")
        guard(one)
        if one.paused == paused:
            return
        now = yield from _now()
        with contextlib.suppress(Changed):
            yield _with_paused(one, None if paused else now)
            return
    raise Changed(f"schedule {name}: other clients keep creating or changing it; try again")


def _with_paused(one: Stored, now: int | None) -> Call[str]:
    plan = one.fields.get("plan")
    if not plan:  # the script removes a schedule without one
        raise Invalid(f"schedule {one.name} has lost its recurrence: remove it, or put it again")
    found = None if now is None else first(one.recurrence, one.name, now)
    return schedule(
        one.base, one.name, one.revision, was="", plan=plan, queue=one.text("queue"), task=one.text("task"),
        rules=one.text("rules"), overlap=one.text("overlap"), paused=now is None, occurrence=found.occurrence if found else None,
        due=found.due if found else None, payload=one.fields.get("payload", b""), by=person(),
    )  # fmt: skip


def run(
    operations: SubmitOperations, name: str, job_id: str | None = None, rules: str = ""
) -> Plan[Submitted]:
    """Submit one job of a schedule now, also while it is paused. With the same `job_id` again, no second job
    is stored. `rules`: further options as text. Raises Invalid, NotFound, and the errors of a submit.
    """
    one = yield from find(operations, name)
    job = job_of(operations, one, job_id, rules)
    yield from record_run(one, job)
    (submitted,) = yield from operations.submit([job])
    return submitted


def record_run(one: Stored, job: Submission) -> Plan[None]:
    """Write to the audit that the person of this context (`person()`), if any, ran this schedule."""
    return audit_log.record(one.base, "schedule-run", one.name, job.queue, f"submitted {job.id}", job.id)


def job_of(operations: SubmitOperations, one: Stored, job_id: str | None, rules: str = "") -> Submission:
    """Make the job that `run` submits for a schedule, without storing it."""
    words = " ".join(filter(None, [one.text("rules"), f"schedule={one.name}", rules]))
    return operations.submission(
        one.text("task"), one.fields.get("payload", b""), one.text("queue"), words, job_id
    )


def sync(
    operations: SubmitOperations, wanted: Sequence[NewSchedule], source: str = "", remove: bool = False
) -> Plan[list[Synced]]:
    """Store the schedules that code declares, with `source` as their owner, even if they had another (empty:
    they keep it); return the outcome of each. The same call again writes nothing.

    With `remove`, other schedules of this owner are removed, too. Before any write, raises Invalid for
    `remove` without `source`, and WrongState for a schedule in another partition than that of its queue."""
    if remove and not source:
        raise Invalid(
            "remove: give source, too: the schedules of this source that are not wanted are removed"
        )
    mine = {one.name: one._replace(source=source) for one in wanted}
    there = yield from _read_for_sync(operations, mine.keys(), source, remove)
    for name, one in mine.items():
        found = there.get(name, [])
        if found and all(seen.base != operations.base_of_queue(one.queue) for seen in found):
            raise WrongState(_other_partition(one, found[0]))
    answers = []
    for name, one in mine.items():
        found = there.pop(name, [])
        before = found[0].source if found and found[0].source != source else None
        is_so = len(found) == 1 and _is_as_wanted(one, found[0])
        answers.append(Synced(name, "unchanged" if is_so else (yield from _put(operations, one)), before))
    for name, found in sorted(there.items()):
        for seen in found:
            yield from _remove_from(operations, seen.base, name, source)
        answers.append(Synced(name, "removed"))
    return answers


def _read_for_sync(
    operations: SubmitOperations, wanted: Iterable[str], source: str, remove: bool
) -> Plan[dict[str, list[Stored]]]:
    there: dict[str, list[Stored]] = {}
    for base in operations.bases:
        all_names = set((yield names(base)))
        found = yield from _read(base, sorted(all_names.intersection(wanted)), stored)
        if remove:
            others = yield from _read(base, sorted(all_names.difference(wanted)), summaries)
            found += [one for one in others if one.source == source]
        for one in found:
            there.setdefault(one.name, []).append(one)
    return there


def _read(
    base: str, wanted: Sequence[str], read: Callable[[str, Sequence[str]], Call[list[Stored]]]
) -> Plan[list[Stored]]:
    found: list[Stored] = []
    for i in range(0, len(wanted), PAGE):
        found += yield read(base, wanted[i : i + PAGE])
    return found


def _now() -> Plan[int]:
    now: datetime = yield server_info.clock()
    return in_ms(now)


def _find_all(bases: Sequence[str], name: str) -> Plan[list[Stored]]:
    found: list[Stored] = []
    for base in bases:
        found += yield stored(base, [name])
    return found


def _find_one(bases: Sequence[str], name: str) -> Plan[Stored | None]:
    # Clients may create one name in several partitions at once: remove all but the first
    for _ in range(ATTEMPTS):
        found = yield from _find_all(bases, name)
        if len(found) < 2:
            return found[0] if found else None
        for duplicate in found[1:]:
            with contextlib.suppress(Changed, NotFound):
                yield unschedule(duplicate.base, name, duplicate.revision, duplicate.text("occurrence"))
    raise Changed(f"schedule {name}: other clients keep creating or changing it; try again")


def _change(operations: SubmitOperations, base: str, name: str, decide: Decide) -> Plan[str]:
    for left in range(ATTEMPTS - 1, -1, -1):
        found = yield stored(base, [name])
        call = decide(found[0] if found else None, (yield from _now()))
        if call is None:
            break
        try:
            answer: str = yield call
            return answer
        except (Changed, NotFound):
            if not left:
                raise
        except NoNamespace:
            if not left:
                raise
            yield from operations.prepare()
    return "unchanged"


def _remove_from(
    operations: SubmitOperations, base: str, name: str, source: str | None = None, guard: Guard = permit
) -> Plan[bool]:
    removed = False

    def decide(seen: Stored | None, now: int) -> Call[str] | None:
        nonlocal removed
        if seen:
            guard(seen)
        removed = seen is not None and source in (None, seen.source)
        if not (seen and removed):
            return None
        return unschedule(base, name, seen.revision, seen.text("occurrence"), person())

    yield from _change(operations, base, name, decide)
    return removed
