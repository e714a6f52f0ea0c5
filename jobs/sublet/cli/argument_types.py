"""Parsers of arguments for argparse's `type=`. Each raises ArgumentTypeError that names the valid values."""

from __future__ import annotations

import json
import re
import sys
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sublet.errors import Invalid, did_you_mean

_DURATION = r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)?"
_UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = r"(\d{1,12})(KiB|MiB|GiB)?"
_SHIFTS = {None: 0, "KiB": 10, "MiB": 20, "GiB": 30}
LEASE = (0.1, 86_400.0)
MEMORY_MIN = 64 << 20
_NUMBER = 999_999_999
HIDDEN = SUPPRESS
"""A `help` that leaves an option out of the help page: the help of another option names it."""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
STATES = ("scheduled", "queued", "running", "completed", "dead", "cancelled")


def is_duration(text: str) -> bool:
    """Whether `duration` can parse the text."""
    return re.fullmatch(_DURATION, text) is not None


def duration(text: str) -> float:
    """Return the seconds, rounded to ms, of 250ms, 50s, 5m, 1h, 2d or a plain number."""
    found = re.fullmatch(_DURATION, text)
    if found is None:
        why = (
            "a duration cannot be negative" if re.match(r"-\d", text) else f"{text[:40]!r} is not a duration"
        )
        raise ArgumentTypeError(f"{why}; write 250ms, 50s, 5m, 1h, 2d or plain seconds")
    return round(float(found[1]) * _UNITS[found[2]], 3)


def positive_duration(text: str) -> float:
    """Return the seconds of a duration of 1 ms or more."""
    value = duration(text)
    if value <= 0:
        raise ArgumentTypeError(f"{text[:40]!r}: use a duration of 1ms or more, such as 30s")
    return value


def interval(text: str) -> float:
    """Return the seconds of a schedule's interval, 1 s or more."""
    value = duration(text)
    if value < 1:
        raise ArgumentTypeError(f"{text[:40]!r}: use an interval of 1s or more, such as 30s")
    return value


def lease(text: str) -> float:
    """Return the seconds of a lease, 100ms to 1d."""
    value = duration(text)
    if not LEASE[0] <= value <= LEASE[1]:
        raise ArgumentTypeError(
            f"{text[:40]!r}: use 100ms to 1d; a worker without a heartbeat for so long loses its jobs"
        )
    return value


def optional_duration(text: str) -> float | None:
    """Return the seconds of a duration of 1 ms or more; None for `none`, no limit."""
    return None if text == "none" else positive_duration(text)


def timestamp(text: str) -> datetime:
    """Parse an RFC 3339 time with a time zone."""
    from sublet.schedules.durations import read_moment  # slow to load

    try:
        return read_moment(text)
    except Invalid as error:
        raise ArgumentTypeError(f"{text[:40]!r}: {error}") from None


def integer(text: str) -> int:
    """Parse a whole number of up to 18 digits, also a negative one."""
    if not re.fullmatch(r"-?\d{1,18}", text):
        what = (
            "is too large: use at most 18 digits" if re.fullmatch(r"-?\d+", text) else "is not a whole number"
        )
        raise ArgumentTypeError(f"{text[:40]!r} {what}")
    return int(text)


def text_of(source: str) -> bytes | str:
    """Return the text itself, or the bytes of stdin (`-`) or of a file (`@FILE`). Raises Invalid for an
    unreadable file.
    """
    if source == "-":
        return sys.stdin.buffer.read()
    if not source.startswith("@"):
        return source
    try:
        with open(source[1:], "rb") as file:
            return file.read()
    except OSError as error:
        raise Invalid(
            f"cannot read {source[1:]}: {error.strerror}; check the path after @, and its rights"
        ) from None


def json_value(source: str) -> Any:
    """Parse a JSON value: the text itself, stdin (`-`) or a file (`@FILE`)."""
    text = text_of(source)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentTypeError(f"{source[:80]!r}: use JSON; text needs quotes, as in '\"yes\"'") from None


def seed(text: str) -> int:
    """Parse a whole number from 0, of up to 18 digits."""
    if not re.fullmatch(r"\d{1,18}", text):
        raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 0, of at most 18 digits")
    return int(text)


def positive_integer(text: str) -> int:
    """Parse a whole number from 1 to 999,999,999."""
    value = integer(text)
    if value < 1:
        raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 1 to {_NUMBER:,}")
    if value > _NUMBER:
        raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 1 to {_NUMBER:,}")
    return value


def port(text: str) -> int:
    """Parse a TCP port; 0 means any free port."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65_535:
        raise ArgumentTypeError(f"{text[:40]!r} is not a port; use 0 to 65535, where 0 means any free port")
    return int(text)


def integer_up_to(largest: int, reason: str) -> Callable[[str], int]:
    """Return a parser of whole numbers from 1 to `largest`; its error ends with the `reason` why not more."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not 1 <= int(text) <= largest:
            raise ArgumentTypeError(f"{text[:40]!r}: use a whole number from 1 to {largest:,}: {reason}")
        return int(text)

    return parse


def optional_rate(text: str) -> tuple[int, float] | None:
    """Parse 60/1m into (tokens, seconds), here (60, 60.0); None for `none`, no rate."""
    if text == "none":
        return None
    number, slash, span = text.partition("/")
    per = duration(span) if slash else 0
    if per < 0.001 or not re.fullmatch(r"[1-9]\d{0,13}", number):
        raise ArgumentTypeError(f"{text[:40]!r} is not a rate; write 60/1m, 10/1s, or none")
    return int(number), per


def optional_count(text: str) -> int | None:
    """Parse a whole number from 0, of up to 14 digits; None for `none`, no limit."""
    if text == "none":
        return None
    if not re.fullmatch(r"\d{1,14}", text):
        raise ArgumentTypeError(f"{text[:40]!r}: use a whole number such as 5, of up to 14 digits, or none")
    return int(text)


def optional_bytes(text: str) -> int | None:
    """Return the bytes of 500000, 64KiB, 10MiB or 2GiB; None for `none`, no limit."""
    if text == "none":
        return None
    found = re.fullmatch(_SIZE, text)
    if found is None:
        raise ArgumentTypeError(f"{text[:40]!r} is not a size; write 500000, 64KiB, 10MiB, 2GiB, or none")
    return int(found[1]) << _SHIFTS[found[2]]


def child_memory(text: str) -> int | None:
    """Return the bytes of a child process's memory limit, from 64MiB; None for `none`, no limit."""
    found = optional_bytes(text)
    if found is not None and found < MEMORY_MIN:
        raise ArgumentTypeError(f"{text[:40]!r} is too small to start Python in; use 64MiB or more")
    return found


def key(text: str) -> str:
    """Return a deduplication key, which is not empty."""
    if not text:
        raise ArgumentTypeError("the key is empty: use 1 character or more, or leave --key out")
    return text


def state(text: str) -> str:
    """Return the text if it names a job state."""
    if text not in STATES:
        near = did_you_mean(text, STATES) or f"; use one of {', '.join(STATES)}"
        raise ArgumentTypeError(f"there is no state {text[:40]!r}{near}")
    return text


def states(text: str) -> list[str]:
    """Split the text at commas into states."""
    return [state(one) for one in names(text)]


def moment_or_age(text: str) -> datetime | float:
    """Parse a time with a zone, or an age into seconds."""
    try:
        return duration(text) if is_duration(text) else timestamp(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}; or 90s, 5m, 2h, 1d for so long ago") from None


def weighted_names(text: str) -> dict[str, int]:
    """Parse `images:3,mail` into weights by name; 1 without a weight. Names, and the range of weights,
    are not checked.
    """
    found: dict[str, int] = {}
    for part in names(text):
        name, colon, weight = part.rpartition(":")
        if colon and re.fullmatch(r"-?[0-9]*\.?[0-9]*", weight) and not weight.isdecimal():
            raise ArgumentTypeError(
                f"{part[:130]!r}: use NAME:WEIGHT, a weight from 1 to 1000, or the queue's name alone"
            )
        if not (colon and name and re.fullmatch("[0-9]{1,9}", weight)):
            name, weight = part, "1"
        if name in found:
            raise ArgumentTypeError(f"{name[:130]!r} is named twice: name it once")
        found[name] = int(weight)
    return found


def log_level(text: str) -> str:
    """Return the text if it is a log level in any case, such as `debug`."""
    if text.upper() not in LOG_LEVELS:
        near = did_you_mean(text.lower(), [level.lower() for level in LOG_LEVELS])
        raise ArgumentTypeError(f"{text[:40]!r}: use {', '.join(LOG_LEVELS).lower()}{near}")
    return text


def names(text: str) -> list[str]:
    """Split the text at commas into names. They are not checked, but none may be empty."""
    found = text.split(",")
    if not all(found):
        raise ArgumentTypeError(
            f"{text[:130]!r}: a name is empty: use one name, or several separated by single commas"
        )
    return found
