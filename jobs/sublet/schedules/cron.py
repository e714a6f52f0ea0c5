"""Parse cron lines (with `cronsim`) and names of time zones.

This module finds the reason of an error; cronsim names only the field.
"""

import difflib
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST = 200


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    others: tuple[str, ...] = ("*",)
    more: str = ""

    def wrong(self, term: str) -> str | None:
        values, slash, step = term.partition("/")
        if slash and not (step.isdigit() and int(step)):
            return f"has the step {step!r}, which is not a whole number from 1"
        if not values:
            return "has an empty item: write *, a number or a range there"
        if values in self.others:
            return None
        if self.names is _DAYS and "#" in values:
            values, _, which = values.partition("#")
            if which not in tuple("12345"):
                return f"{term} is not a week of the month: use #1 to #5"
        if self.names is _DAYS and values[:-1] and values.endswith("L"):
            values = values[:-1]
        ends = [self._number(value) for value in values.split("-", 1)]
        numbers = [number for number in ends if number is not None]
        if len(numbers) < len(ends):
            return f"{term} is not {self.least} to {self.most}{self.more}"
        if numbers != sorted(numbers):
            return f"{term} ends before it begins: use two ranges, or a list"
        return None

    def _number(self, text: str) -> int | None:
        if text in self.names:
            return self.names.index(text) + self.least
        return int(text) if text.isdigit() and self.least <= int(text) <= self.most else None


_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_LAST = " (FRIL is the month's last, FRI#2 its second)"
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field(
        "day-of-month",
        1,
        31,
        others=("*", "L", "LW"),
        more=", L (the last) or LW (the last from Monday to Friday)",
    ),
    _Field("month", 1, 12, _MONTHS, more=" or JAN to DEC"),
    _Field("day-of-week", 0, 7, _DAYS, more=f" or SUN to SAT{_LAST}"),
)
_SHAPE = "use 5 (minute hour day-of-month month day-of-week), or 6 with seconds first"


def read(text: str) -> CronSim:
    """Parse a cron line or an alias such as `@daily`. Raises ValueError with the invalid field and the reason."""
    prefix = f"cron {text[:LONGEST]!r}: "
    if len(text) > LONGEST or not text.isascii():
        raise ValueError(f"{prefix}use at most {LONGEST} characters, all ASCII")
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            raise ValueError(
                f"{prefix}there is no such alias: use {', '.join(ALIASES)}; give an interval as every, not as cron"
            )
        text = ALIASES[text.lower()]
    parts = text.upper().split()
    if parts and "TZ=" in parts[0]:
        raise ValueError(f"{prefix}give the time zone as tz, not in the cron line")
    if len(parts) not in (5, 6):
        raise ValueError(f"{prefix}{len(parts)} fields; {_SHAPE}")
    for field, part in zip(_FIELDS[-len(parts) :], parts, strict=True):
        for term in part.split(","):
            if why := field.wrong(term):
                raise ValueError(f"{prefix}{field.name} {why}")
    last = [f"{_DAYS.index(term[:-1])}L" if term[:-1] in _DAYS else term for term in parts[-1].split(",")]
    try:
        return CronSim(" ".join([*parts[:-1], ",".join(last)]), datetime(1970, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(prefix + _refused(str(error), parts)) from None


def _refused(why: str, parts: list[str]) -> str:
    name = why.removeprefix("Bad ")
    numbers = {field.name: part for field, part in zip(_FIELDS[-len(parts) :], parts, strict=True)}
    if name == "day-of-month" and not set("LW") & set(numbers[name]):
        return f"day-of-month {numbers[name]} never comes in month {numbers['month']}"
    return f"{name} {numbers.get(name, '')} is not understood"


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Return the names of the time zones in the package `tzdata`, without `Factory`."""
    return frozenset((files("tzdata") / "zones").read_text().split()) - {"Factory"}


def zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name, e.g. `Europe/Berlin`. Raises ValueError for an unknown one."""
    if name in zones():
        return ZoneInfo(name)
    if len(name) > 64:
        raise ValueError("the name of a time zone has at most 64 characters; use one like Europe/Berlin")
    near = _near(name.lower().replace(" ", "_"))
    raise ValueError(
        f"there is no time zone {name!r}; " + (f"is it {near}?" if near else "use one like Europe/Berlin")
    )


def _near(name: str) -> str | None:
    areas = [known for known in sorted(zones()) if "/" in known] + ["UTC"]
    names = {known.rpartition("/")[2].lower(): known for known in areas} | {
        known.lower(): known for known in areas
    }
    found = difflib.get_close_matches(name, names, 1, 0.8)
    return names[found[0]] if found else None
