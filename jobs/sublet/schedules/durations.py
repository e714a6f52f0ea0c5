"""Types of moments and durations, and their conversion to ms and to text."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field

from sublet.errors import Invalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
LATEST_MS = 10**14
"""All moments (ms since 1970) must be earlier: it is in the year 5138."""
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def read_moment(text: object) -> datetime:
    """Parse an RFC 3339 time; seconds may be left out, the zone not. Raises Invalid."""
    given = text if isinstance(text, str) else ""
    try:
        if _DATE.match(given):
            date.fromisoformat(given[:10])
        if _RFC_3339.fullmatch(given):
            return datetime.fromisoformat(given.upper())
    except ValueError as error:
        raise Invalid(f"there is no such time: {error}") from None
    raise Invalid("use a time with a time zone, as RFC 3339 has it, e.g. 2030-01-31T09:00:00Z")


def _moment(value: Any) -> Any:
    try:
        return value if value is None or isinstance(value, datetime) else read_moment(value)
    except Invalid as error:
        raise ValueError(str(error)) from None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Duration = Annotated[float, Field(strict=True, allow_inf_nan=False), BeforeValidator(_seconds)]
"""A number of seconds; code may also give a timedelta."""
Moment = Annotated[Annotated[AwareDatetime, Field(strict=False)] | None, BeforeValidator(_moment)]


def floor_ms(moment: datetime) -> int:
    """Convert a datetime to whole ms since 1970, rounded down."""
    return (moment - EPOCH) // MS


def ceil_ms(moment: datetime) -> int:
    """Convert a datetime to whole ms since 1970, rounded up."""
    return -((EPOCH - moment) // MS)


def spell(seconds: float) -> str:
    """Return a duration as text in its largest whole unit: `90 seconds`, `1 hour`."""
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}{'s' * (seconds != size)}"
    return f"{seconds:g} seconds"
