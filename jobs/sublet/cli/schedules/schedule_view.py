"""Text output of schedules, with times in the schedule's zone and in UTC."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sublet.cli.jobs.job_view import moment
from sublet.cli.output import Cell, clean, compact, duration, fit, paint, write
from sublet.schedules.definition import Schedule

COLOURS = {"active": "green", "held": "yellow", "paused": "yellow", "ended": "dim", "broken": "red"}
POLICIES = {
    "latest": "the latest runs, however late",
    "skip": "the latest runs if it is at most {late} late",
    "all": "the last {most} run, oldest first",
}
WRAPPED = 66
USUAL = 1.0
OVERLAPS = {
    "allow": "both run",
    "skip": "the new occurrence is skipped",
    "queue": "the new occurrence waits for it",
}


def row(one: Schedule, now: datetime) -> list[Cell | str]:
    """Return a schedule's row of the list; the state of an active one whose `due_at` has passed is `overdue …`."""
    last = f"{duration((now - one.last_at).total_seconds())} ago" if one.last_at else "never"
    next_at = in_zone(one.next_at, one.tz) if one.next_at else ""
    late = _overdue(one, now)
    state = Cell(f"overdue {duration(late)}", "yellow") if late else Cell(one.state, COLOURS[one.state])
    return [one.name, state, next_at, _time_left(one, now), last, one.description]


def _overdue(one: Schedule, now: datetime) -> float:
    due = one.due_at or one.next_at
    late = (now - due).total_seconds() if due and one.state == "active" else 0.0
    return late if late >= USUAL else 0.0


def in_zone(at: datetime, tz: str) -> str:
    """Return a time as text in a time zone; in UTC if the zone is unknown."""
    try:
        local = at.astimezone(ZoneInfo(tz))
    except (ZoneInfoNotFoundError, ValueError):
        return moment(at)
    return f"{local:%a %Y-%m-%d %H:%M:%S %Z}"


def _time_left(one: Schedule, now: datetime) -> str:
    if one.next_at is None:
        return ""
    left = ((one.due_at if one.due_at and one.state == "active" else None) or one.next_at) - now
    return (
        duration(left.total_seconds())
        if left.total_seconds() >= 0
        else "now"
        if one.state == "active"
        else ""
    )


def show_schedule(one: Schedule, now: datetime) -> None:
    """Print a schedule, without most options of its jobs; `now` is Redis's time."""
    write(f"{paint(one.name, 'bold')}   {paint(one.state, COLOURS[one.state])}")
    for name, text in _facts(one, now):
        lines = textwrap.wrap(clean(text), WRAPPED) if name == "when" else [clean(text)]
        for i, line in enumerate(lines):
            write(f"  {paint(('' if i else name).ljust(11), 'dim')} {fit(line, 14)}")


def _facts(one: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    yield from _definition(one)
    yield from _next_runs(one, now)
    yield from _past_runs(one, now)
    yield from _policies(one)
    yield "from", one.source or "put by hand"
    if one.changed_at:
        yield "changed", f"{moment(one.changed_at)}   {_ago(one.changed_at, now)}"


def _definition(one: Schedule) -> Iterator[tuple[str, str]]:
    yield "when", one.description
    if one.cron:
        yield "cron line", f"{one.cron}   {one.tz}"
    yield "task", one.task + (f"   {compact(one.payload)}" if one.payload else "")
    yield "queue", one.queue + (f"   priority {one.priority}" if one.priority else "")


def _next_runs(one: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    for i, at in enumerate(one.upcoming):
        name = ("next runs" if one.state != "paused" else "would run") if not i else ""
        here, left = in_zone(at, one.tz), f"in {duration((at - now).total_seconds())}"
        yield name, "  ".join([here, *([] if one.tz == "UTC" else [moment(at.astimezone(UTC))]), left])
    if not one.upcoming and one.state != "broken":
        has_ended = one.end and one.end <= now
        reason = "its end has passed" if has_ended else "there is no occurrence before its end"
        yield "next runs", f"none: {reason}"
    if _overdue(one, now) and one.next_at:
        since = _ago(one.next_at, now)
        yield "overdue", f"{in_zone(one.next_at, one.tz)}  {since}; no maintenance has run since"


def _past_runs(one: Schedule, now: datetime) -> Iterator[tuple[str, str]]:
    if one.last_at and one.fired_at:
        late = duration((one.fired_at - one.last_at).total_seconds())
        yield "last occurrence", f"{in_zone(one.last_at, one.tz)}  {_ago(one.last_at, now)}"
        yield "submitted", f"{late} late, by {one.fired_by}"
        yield "its job", one.last_job or ""
    for i, run in enumerate(one.last_runs):
        at = in_zone(run.occurrence, one.tz)
        yield "" if i else "last runs", f"{at}  {(run.state or 'gone').ljust(9)}  {run.job}"
    yield (
        "occurrences",
        f"{one.fired:,} fired, {one.occurrences_missed:,} missed, {one.occurrences_skipped:,} skipped",
    )
    if one.held:
        occurrence = in_zone(one.next_at, one.tz) if one.next_at else "an occurrence"
        yield "held", f"the job of {occurrence} waits: {one.held}"


def _policies(one: Schedule) -> Iterator[tuple[str, str]]:
    yield "if missed", POLICIES[one.missed].format(late=duration(one.late), most=one.most)
    yield "overlap", f"while the previous job is unfinished, {OVERLAPS[one.overlap]}"
    if one.jitter:
        yield "jitter", f"up to {duration(one.jitter)} after its occurrence"


def _ago(at: datetime, now: datetime) -> str:
    return f"{duration((now - at).total_seconds())} ago"
