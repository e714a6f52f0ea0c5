"""Find the next and the last occurrence of a cron line in a time zone.

When clocks change, the rules of Debian's cron apply: a *fixed* line, whose minutes and hours have no leading star,
fires once for each time that it names: a skipped one right after the gap, a repeated one the first time. Any other
line skips the skipped hour and fires again in the repeated one.

A moment is whole seconds since 1970.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from sublet.schedules.cron import read

_YEARS = 50
"""Years searched: a Monday, 29th of February comes every 28 years, or 40."""
_DAY = 86_400
_EPOCH = datetime(1970, 1, 1)
_FIRST_DAY = _EPOCH.toordinal()


class _Run(NamedTuple):
    begin: int
    end: int
    moment: Callable[[int], int]


class CronLine:
    """A parsed cron line. Raises ValueError, with the field and the reason, for an invalid line."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        self._sim = read(self.text)
        self._months = self._sim.months
        self._hours, self._minutes, self._seconds = (
            sorted(field) for field in (self._sim.hours, self._sim.minutes, self._sim.seconds)
        )
        self._times = range(len(self._hours) * len(self._minutes) * len(self._seconds))
        self._fixed = not any(part.startswith("*") for part in self._sim.parts[1:3])

    def describe(self) -> str:
        """Return the line in English: `At 09:00 on Monday through Friday`."""
        return self._sim.explain()

    def after(self, moment: int, zone: ZoneInfo) -> int | None:
        """Return the first occurrence strictly after `moment`; None if fifty years have none."""
        for begin, end, at in self._runs(moment, zone, 1):
            i = bisect_right(self._times, max(moment, begin - 1), key=at)
            if i < len(self._times) and at(i) < end:
                return at(i)
        return None

    def until(self, moment: int, zone: ZoneInfo) -> int | None:
        """Return the last occurrence at or before `moment`; None without one in 50 years, or since 1970."""
        for begin, end, at in self._runs(moment, zone, -1):
            i = bisect_left(self._times, min(moment + 1, end), key=at) - 1
            if i >= 0 and at(i) >= max(begin, 0):
                return at(i)
        return None

    def _runs(self, moment: int, zone: ZoneInfo, step: int) -> Iterator[_Run]:
        if self._fixed:
            here = (moment + _offset(moment, zone)) // _DAY
            seen = here if step > 0 else here + 1  # where 00:01 becomes 23:01
            for day in self._days(seen, step):
                yield _Run(-(10**12), 10**12, self._fixed_times(day, zone))
        else:
            yield from self._flowing(moment, zone, step)

    def _flowing(self, moment: int, zone: ZoneInfo, step: int) -> Iterator[_Run]:
        following = moment // _DAY
        for found in self._days(following - step, step):
            for day in (found - step, found, found + step):
                if (day - following) * step < 0:
                    continue
                following = day + step
                for begin, end, offset in _pieces(day, zone)[::step]:
                    walls = range((begin + offset) // _DAY, (end - 1 + offset) // _DAY + 1)
                    for wall in walls[::step]:
                        if self._fits(_date(wall)):
                            yield _Run(begin, end, self._flowing_times(wall, offset))

    def _fixed_times(self, day: int, zone: ZoneInfo) -> Callable[[int], int]:
        return lambda i: _moment(day * _DAY + self._time(i), zone)

    def _flowing_times(self, day: int, offset: int) -> Callable[[int], int]:
        return lambda i: day * _DAY + self._time(i) - offset

    def _time(self, i: int) -> int:
        rest, second = divmod(i, len(self._seconds))
        hour, minute = divmod(rest, len(self._minutes))
        return self._hours[hour] * 3600 + self._minutes[minute] * 60 + self._seconds[second]

    def _fits(self, day: date) -> bool:
        return day.month in self._months and self._sim.match_day(day)

    def _days(self, day: int, step: int) -> Iterator[int]:
        left = _YEARS * 366 if step > 0 else min(_YEARS * 366, day + 3)
        end = day + step * left
        while (end - day) * step > 0:
            this = _date(day)
            if this.month not in self._months:
                first = this.replace(day=1)
                day = _number((first + timedelta(31)).replace(day=1) if step > 0 else first - timedelta(1))
                continue
            if self._sim.match_day(this):
                yield day
            day += step


@lru_cache(maxsize=4096)
def cron_line(text: str) -> CronLine:
    """Parse a cron line, or return it from a cache. Raises ValueError."""
    return CronLine(text)


def _date(day: int) -> date:
    return date.fromordinal(_FIRST_DAY + day)


def _number(day: date) -> int:
    return day.toordinal() - _FIRST_DAY


def _offset(moment: int, zone: ZoneInfo) -> int:
    return _seconds(datetime.fromtimestamp(moment, zone).utcoffset())


def _seconds(offset: timedelta | None) -> int:
    return offset.days * _DAY + offset.seconds if offset else 0


def _moment(wall: int, zone: ZoneInfo) -> int:
    shown = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=zone)
    offset = _seconds(shown.utcoffset())
    if _offset(wall - offset, zone) == offset:
        return wall - offset
    return _change(wall - _seconds(shown.replace(fold=1).utcoffset()), wall - offset, zone)


def _change(before: int, later: int, zone: ZoneInfo) -> int:
    # No zone changes its offset twice within two days
    old = _offset(before, zone)
    return bisect_left(range(later), True, before, later, key=lambda moment: _offset(moment, zone) != old)


def _pieces(day: int, zone: ZoneInfo) -> list[tuple[int, int, int]]:
    begin, end = day * _DAY, (day + 1) * _DAY
    old, new = _offset(begin, zone), _offset(end - 1, zone)
    if old == new:
        return [(begin, end, old)]
    change = _change(begin, end - 1, zone)
    return [(begin, change, old), (change, end, new)]
