"""Types of moments and durations, and their conversion to ms and to text."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field
from pydantic_core import PydanticCustomError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
LATEST_MS = 10**14
"""All moments (ms since 1970) must be earlier: it is in the year 5138."""
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _is_moment(value: Any) -> Any:
    if not (
        value is None
        or isinstance(value, datetime)
        or (isinstance(value, str) and _RFC_3339.fullmatch(value))
    ):
        raise PydanticCustomError(
            "moment", "use a moment with a time zone, as RFC 3339 has it, e.g. 2026-01-31T12:00:00Z"
        )
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Duration = Annotated[float, Field(strict=True, allow_inf_nan=False), BeforeValidator(_seconds)]
"""A number of seconds; code may also give a timedelta."""
Moment = Annotated[Annotated[AwareDatetime, Field(strict=False)] | None, BeforeValidator(_is_moment)]


def floor_ms(moment: datetime) -> int:
    """Convert a datetime to whole ms since 1970, rounded down."""
    return (moment - EPOCH) // MS


def ceil_ms(moment: datetime) -> int:
    """Convert a datetime to whole ms since 1970, rounded up."""
    return -((EPOCH - moment) // MS)


def spell(seconds: float) -> str:
    """Return a duration as text in one unit: `90 seconds`, `1 hour`."""
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}{'s' * (seconds != size)}"
    return f"{seconds:g} seconds"
