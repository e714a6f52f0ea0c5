"""What people write on a command line, made into values. An ArgumentTypeError says how to write it instead."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import datetime

from sublet.errors import did_you_mean

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = re.compile(r"(\d{1,12})(KiB|MiB|GiB)?")
_SHIFTS = {None: 0, "KiB": 10, "MiB": 20, "GiB": 30}
LEASE = (0.1, 86_400.0)
MEMORY_MIN = 64 << 20
_NUMBER = 999_999_999
STATES = ("scheduled", "queued", "running", "completed", "dead", "cancelled")


def is_duration(text: str) -> bool:
    """Does this read as a duration?"""
    return _DURATION.fullmatch(text) is not None


def seconds(text: str) -> float:
    """A duration: 250ms, 50s, 5m, 1h, 2d, or plain seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        why = "a duration cannot be negative" if text.startswith("-") else f"{text[:40]!r} is no duration"
        raise ArgumentTypeError(f"{why}; write 250ms, 50s, 5m, 1h, 2d or plain seconds")
    return round(float(found[1]) * _UNITS[found[2]], 3)


def some_seconds(text: str) -> float:
    """A duration above 0."""
    value = seconds(text)
    if value <= 0:
        raise ArgumentTypeError("use a duration above 0")
    return value


def lease(text: str) -> float:
    """How long a worker may be silent: long enough to be heard of in it, several times."""
    value = seconds(text)
    if not LEASE[0] <= value <= LEASE[1]:
        raise ArgumentTypeError(
            f"{text[:40]!r}: use 100ms to 1d; what was silent for so long is taken for dead"
        )
    return value


def limit(text: str) -> float | None:
    """A duration, or `none` for no limit."""
    return None if text == "none" else some_seconds(text)


def moment(text: str) -> datetime:
    """A moment with a time zone, as RFC 3339 writes it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ArgumentTypeError(
            f"{text[:40]!r} is no moment; write 2030-01-31T09:00:00Z, or +02:00 in place of the Z"
        )
    return found


def number(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"-?\d{1,18}", text):  # what is too much for its option is said there
        what = "is too large" if re.fullmatch(r"-?\d+", text) else "is no whole number"
        raise ArgumentTypeError(f"{text[:40]!r} {what}")
    return int(text)


def seed(text: str) -> int:
    """What chance begins with: any whole number that we have printed, and so the time of day in seconds."""
    if not re.fullmatch(r"\d{1,18}", text):
        raise ArgumentTypeError(f"{text[:40]!r} is no whole number")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    value = number(text)
    if value < 1:
        raise ArgumentTypeError("use a whole number from 1")
    if value > _NUMBER:
        raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 1 to {_NUMBER:,}")
    return value


def port(text: str) -> int:
    """A TCP port; 0 stands for a free one."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65_535:
        raise ArgumentTypeError(f"{text[:40]!r} is no port; use 0 to 65535, where 0 finds a free one")
    return int(text)


def up_to(largest: int, because: str) -> Callable[[str], int]:
    """A reader of whole numbers from 1 to `largest`, which says why there is an end."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not 1 <= int(text) <= largest:
            raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 1 to {largest:,}: {because}")
        return int(text)

    return read


def most(text: str) -> int | None:
    """A whole number from 0, or `none` for no limit."""
    if text == "none":
        return None
    if not re.fullmatch(r"\d{1,14}", text):
        raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 0 to {10**14 - 1:,}, or none")
    return int(text)


def size(text: str) -> int | None:
    """A number of bytes: 500000, 64KiB, 10MiB, 2GiB; or `none` for no limit."""
    if text == "none":
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{text[:40]!r} is no size; write 500000, 64KiB, 10MiB, 2GiB, or none")
    return int(found[1]) << _SHIFTS[found[2]]


def memory(text: str) -> int | None:
    """A number of bytes in which a Python process can live; or `none` for no limit."""
    found = size(text)
    if found is not None and found < MEMORY_MIN:
        raise ArgumentTypeError(f"{text[:40]!r} is too small to start Python in; use 64MiB or more")
    return found


def state(text: str) -> str:
    """The name of a state."""
    if text not in STATES:
        near = did_you_mean(text, STATES) or f"; there are {', '.join(STATES)}"
        raise ArgumentTypeError(f"there is no state {text[:40]!r}{near}")
    return text


def names(text: str) -> list[str]:
    """Names with commas between."""
    found = [name for name in text.split(",") if name]
    if not found:
        raise ArgumentTypeError("use one name, or several with commas between")
    return found
