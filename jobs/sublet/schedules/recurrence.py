"""Compute a schedule's occurrences. Without a clock, without I/O.

An *occurrence* is a moment that the recurrence names, in ms since 1970. Its job's id contains the moment, so that
several callers fire it once. With jitter an occurrence is *due* a little later, before the next one.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from sublet.schedules.cron import zone
from sublet.schedules.cron_times import cron_line
from sublet.schedules.durations import EPOCH, LATEST_MS, MS, Duration, Moment, Whole, ceil_ms, floor_ms, spell

COUNTED = 100
"""Dropped occurrences of a cron line are counted up to about this number."""
UPCOMING_MAX = 1000
_OVERLAP = {"allow": "", "skip": ", skipped while the previous job runs", "queue": ", one after the other"}
_YEARS_10 = 315_576_000.0


class Occurrence(NamedTuple):
    """One occurrence, and when its job is due (with jitter), both in ms since 1970."""

    occurrence: int
    due: int


class Firing(NamedTuple):
    """Which due occurrences to fire now, how many are dropped, and the next one."""

    occurrences: tuple[int, ...]
    """The occurrences to fire, the oldest first."""
    missed: int
    """How many due occurrences are dropped. Of a cron line, 100 (101 if none is fired) means so many or more."""
    next: Occurrence | None
    """The next occurrence, which may be due already; None if the recurrence has ended."""


def _wrong(why: str) -> PydanticCustomError:
    return PydanticCustomError("recurrence", "{why}", {"why": why})


class Recurrence(BaseModel):
    """When a schedule submits jobs: a cron line or an interval, and the policies for missed and overlapping
    occurrences.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    cron: str | None = Field(
        default=None,
        description="Cron line: minute, hour, day-of-month, month, day-of-week; seconds may come first.",
    )
    every: Annotated[Duration, Field(ge=1, le=_YEARS_10)] | None = Field(
        default=None,
        validate_default=True,
        description="Seconds from occurrence to occurrence, instead of cron.",
    )
    tz: str = Field(default="UTC", description="The IANA time zone of the cron line.")
    start: Moment = Field(
        default=None,
        description="The first occurrence is at this moment or later; intervals count from here, or from 1970.",
    )
    end: Moment = Field(default=None, description="The last occurrence is at this moment or earlier.")
    jitter: Annotated[Duration, Field(ge=0, le=86_400)] = Field(
        default=0,
        description="Each occurrence is due up to this many seconds later, and always before the next one.",
    )
    missed: Literal["latest", "skip", "all"] = Field(
        default="latest",
        description="Misfire policy for occurrences that came due while no worker or tick ran: latest fires the last one, skip does so unless it is over `late` seconds late, all fires the last `most`.",
    )
    late: Annotated[Duration, Field(ge=0, le=_YEARS_10)] = Field(
        default=300, description="With missed=skip: how many seconds late an occurrence may be fired."
    )
    most: Annotated[Whole, Field(ge=1, le=100)] = Field(
        default=24, description="With missed=all: how many missed occurrences are fired, at most."
    )
    overlap: Literal["allow", "skip", "queue"] = Field(
        default="allow",
        description="Overlap policy for an occurrence that is due while the job of the one before is unfinished: allow submits its job, skip drops the occurrence, queue lets it wait.",
    )

    @field_validator("cron")
    @classmethod
    def _fires(cls, cron: str | None) -> str | None:
        if cron is None:
            return None
        try:
            read = cron_line(cron)
        except ValueError as error:
            raise _wrong(str(error)) from None
        if read.after(0, zone("UTC")) is None:
            raise _wrong(
                f"cron {read.text!r} never fires: no day fits both its day-of-month and its day-of-week"
            )
        return read.text

    @field_validator("every")
    @classmethod
    def _one_of_both(cls, every: float | None, info: ValidationInfo) -> float | None:
        if "cron" in info.data and (every is None) == (info.data["cron"] is None):
            raise _wrong(
                "use cron, a line like '0 9 * * MON-FRI', or every, in seconds"
                + (", not both" if every else "")
            )
        return every

    @field_validator("tz")
    @classmethod
    def _is_known(cls, tz: str) -> str:
        try:
            zone(tz)
        except ValueError as error:
            raise _wrong(str(error)) from None
        return tz

    @field_validator("start", "end")
    @classmethod
    def _is_in_time(cls, moment: datetime | None) -> datetime | None:
        if moment is not None and not 1970 < moment.year < 5000:
            raise _wrong("use a moment in the years 1971 to 4999")
        return moment and moment.astimezone(UTC)

    @field_validator("end")
    @classmethod
    def _comes_after_an_occurrence(cls, end: datetime | None, info: ValidationInfo) -> datetime | None:
        start, cron, tz = (info.data.get(name) for name in ("start", "cron", "tz"))
        if end is not None and start is not None and end < start:
            raise _wrong(f"end is before start, {start.isoformat()}")
        if end is not None and cron is not None and tz is not None:
            last = cron_line(cron).until(floor_ms(end) // 1000, zone(tz))
            if last is None or (start is not None and last * 1000 < ceil_ms(start)):
                raise _wrong(
                    f"cron {cron!r} has no occurrence {'between start and end' if start else 'before end'}"
                )
        return end

    @field_validator("jitter")
    @classmethod
    def _is_less_than_the_interval(cls, jitter: float, info: ValidationInfo) -> float:
        every = info.data.get("every")
        if every is not None and jitter >= every:
            raise _wrong(f"jitter must be less than every, {every:g} s")
        return jitter


def first(recurrence: Recurrence, name: str, after_ms: int) -> Occurrence | None:
    """Return the first occurrence strictly after a moment, or None. The jitter depends on `name`."""
    occurrence = _next(recurrence, after_ms)
    return None if occurrence is None else Occurrence(occurrence, _due(recurrence, name, occurrence))


def firing(recurrence: Recurrence, name: str, occurrence_ms: int, now_ms: int) -> Firing:
    """Decide which occurrences that are due from `occurrence_ms` to `now_ms` are fired.

    `latest` fires the last, `skip` that one if it is at most `late` seconds late, `all` the last `most`, or with
    overlap=queue only the first of these: the others stay due. If each call gets the `next` of the one before, none
    is fired twice.
    """
    due = _due(recurrence, name, occurrence_ms)
    if due > now_ms:
        return Firing((), 0, Occurrence(occurrence_ms, due))
    last = _last_due(recurrence, name, occurrence_ms, now_ms)
    wanted = recurrence.most if recurrence.missed == "all" else 1
    back = list(islice(_back(recurrence, occurrence_ms, last), wanted + COUNTED))
    fired = back[:wanted][::-1]
    if recurrence.missed == "skip" and now_ms - _due(recurrence, name, last) > recurrence.late * 1000:
        fired = []
    missed = _count(recurrence, occurrence_ms, last, len(back)) - len(fired)
    if recurrence.overlap == "queue" and len(fired) > 1:
        return Firing((fired[0],), missed, Occurrence(fired[1], _due(recurrence, name, fired[1])))
    return Firing(tuple(fired), missed, first(recurrence, name, last))


def upcoming(recurrence: Recurrence, after_ms: int, n: int = 5) -> list[datetime]:
    """Return the next `n` (≤ 1,000) occurrences after a moment, in the time zone `tz`, without jitter."""
    found: list[datetime] = []
    occurrence = _next(recurrence, after_ms)
    while occurrence is not None and len(found) < min(n, UPCOMING_MAX):
        found.append((EPOCH + occurrence * MS).astimezone(zone(recurrence.tz)))
        occurrence = _next(recurrence, occurrence)
    return found


def describe(recurrence: Recurrence) -> str:
    """Describe a recurrence in English."""
    tz, extras = f" ({recurrence.tz})", ""
    if recurrence.cron is not None:
        said = cron_line(recurrence.cron).describe()
    else:
        every = spell(recurrence.every or 0)
        said = f"Every {every.removeprefix('1 ')}"
    for word, moment in (("from", recurrence.start), ("until", recurrence.end)):
        if moment is not None:
            said += f", {word} {moment.astimezone(zone(recurrence.tz)):%Y-%m-%d %H:%M:%S}"
    if recurrence.cron is not None or recurrence.start or recurrence.end:
        said += tz
    if recurrence.jitter:
        extras += f", up to {spell(recurrence.jitter)} later"
    if recurrence.missed == "skip":
        extras += f", not if more than {spell(recurrence.late)} late"
    if recurrence.missed == "all":
        extras += f", up to {recurrence.most} missed occurrences made up for"
    return said + extras + _OVERLAP[recurrence.overlap]


def _next(recurrence: Recurrence, after_ms: int) -> int | None:
    begin = 0 if recurrence.start is None else ceil_ms(recurrence.start)
    after = max(after_ms, begin - 1)
    if after >= LATEST_MS:
        return None
    if recurrence.cron is not None:
        found = cron_line(recurrence.cron).after(after // 1000, zone(recurrence.tz))
        occurrence = None if found is None else found * 1000
    else:
        every = _every(recurrence)
        occurrence = begin + ((after - begin) // every + 1) * every
    return (
        None
        if occurrence is None or (recurrence.end is not None and occurrence > floor_ms(recurrence.end))
        else occurrence
    )


def _last(recurrence: Recurrence, until_ms: int) -> int | None:
    begin = 0 if recurrence.start is None else ceil_ms(recurrence.start)
    until = min(until_ms, LATEST_MS if recurrence.end is None else floor_ms(recurrence.end))
    if until < begin:
        return None
    if recurrence.cron is None:
        return until - (until - begin) % _every(recurrence)
    found = cron_line(recurrence.cron).until(until // 1000, zone(recurrence.tz))
    return None if found is None or found * 1000 < begin else found * 1000


def _last_due(recurrence: Recurrence, name: str, occurrence: int, now: int) -> int:
    # Jitter ends before the next occurrence, so only the last may not be due yet
    last = max(occurrence, _last(recurrence, now) or 0)
    if last > occurrence and _due(recurrence, name, last) > now:
        last = max(occurrence, _last(recurrence, last - 1) or 0)
    return last


def _back(recurrence: Recurrence, occurrence: int, last: int) -> Iterator[int]:
    while last > occurrence:
        yield last
        last = _last(recurrence, last - 1) or 0
    yield occurrence


def _count(recurrence: Recurrence, occurrence: int, last: int, seen: int) -> int:
    if recurrence.cron is not None:
        return seen
    begin, every = 0 if recurrence.start is None else ceil_ms(recurrence.start), _every(recurrence)
    return 1 + (last - begin) // every - (occurrence - begin) // every


def _due(recurrence: Recurrence, name: str, occurrence: int) -> int:
    span = round(recurrence.jitter * 1000)
    if span == 0:
        return occurrence
    following = _next(recurrence, occurrence)
    if following is not None:
        span = min(span, following - occurrence)
    return occurrence + (
        int.from_bytes(hashlib.blake2b(f"{name} {occurrence}".encode(), digest_size=8).digest(), "big") * span
        >> 64
    )


def _every(recurrence: Recurrence) -> int:
    return round((recurrence.every or 0) * 1000)
