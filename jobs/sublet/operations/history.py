"""The history of a namespace: samples of totals and sizes, a day by minutes and 30 days by hours."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

from sublet.errors import Invalid
from sublet.model import Frozen, Timestamp
from sublet.operations import statistics
from sublet.protocol import keys, queue_names, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

Span = Literal["hour", "day", "month"]
MINUTE, HOUR = 60_000, 3_600_000
WIDTH, MINUTES, HOURS = 128, 1440, 720
"""Bytes of a sample; samples kept by minutes and by hours; as in the script."""
TOTALS = ("submitted", "completed", "failed", "dead", "cancelled", "expired")
SIZES = ("scheduled", "queued", "running", "oldest_queued_seconds")

Value = float | None


class History(Frozen):
    """Numbers of a namespace over time. Each list has a value for every `step_seconds` from `start` on, the
    present one last; None where no worker or tick ran for over five steps (`month`: one).

    Rates are averages since the sample before; also None without one, or if a total has decreased.
    """

    span: Span
    start: Timestamp
    step_seconds: int
    submitted_per_minute: tuple[Value, ...]
    completed_per_minute: tuple[Value, ...]
    failed_per_minute: tuple[Value, ...]
    dead_per_minute: tuple[Value, ...]
    cancelled_per_minute: tuple[Value, ...]
    expired_per_minute: tuple[Value, ...]
    """Leases per minute that expired."""
    scheduled: tuple[int | None, ...]
    queued: tuple[int | None, ...]
    running: tuple[int | None, ...]
    oldest_queued_seconds: tuple[int | None, ...]
    """For how many seconds the first job of a queue has been due; of all queues, the longest; 0: no job."""


class _Resolution(NamedTuple):
    key: Any
    step: int
    points: int
    reach: int
    """A pause of more steps is a gap."""


RESOLUTIONS = {
    "hour": _Resolution(keys.minutes, MINUTE, 60, 5),
    "day": _Resolution(keys.minutes, MINUTE, MINUTES, 5),
    "month": _Resolution(keys.hours, HOUR, HOURS, 1),
}


class Sample(NamedTuple):
    """Numbers of a partition at one moment (ms since 1970), in the order of `TOTALS` and `SIZES`."""

    at: int
    totals: tuple[int, ...]
    sizes: tuple[int, ...]


def sample(bases: Sequence[str]) -> Plan[float]:
    """Record a sample in each partition that has none for this minute. Returns the seconds until the next
    minute.
    """
    seconds = 60.0
    for base in bases:
        answer, seconds = yield verbs.sample(base)
        if answer == "count":
            queued, due = yield from _waiting(base)
            _, seconds = yield verbs.sample(base, queued, due)
    return seconds


def _waiting(base: str) -> Plan[tuple[int, int | str]]:
    queued, due, cursor, more = 0, list[int](), 0, True
    while more:
        found, cursor = yield from queue_names.page(base, cursor)
        names = [*found]
        more, busy = cursor != 0, list[str]()
        for kind in ("queue", "grouped"):
            lengths = yield from queue_names.lengths(base, kind, names)
            busy += [f"{base}:{kind}:{name}" for name, length in zip(names, lengths, strict=True) if length]
            queued += sum(lengths)
        if busy:
            heads = yield together([("ZRANGE", key, 0, 0) for key in busy], _first)
            found = (yield statistics.due(base, heads)) if heads else []
            due += [at for at in found if at is not None]
    return queued, min(due, default="")


def _first(reply: Sequence[Any]) -> list[str]:
    return [found[0].decode("utf-8", "replace") for found in reply if found]


def history(bases: Sequence[str], span: Span) -> Plan[History]:
    """Return the numbers of the last hour, day or month (30 days). Raises Invalid for another `span`."""
    if span not in RESOLUTIONS:
        raise Invalid(f"span {str(span)[:40]!r}: use {', '.join(get_args(Span))}")
    how, end = RESOLUTIONS[span], 0
    parts: list[dict[int, Row]] = []
    for base in bases:
        now, samples = yield _samples(base, how)
        end = end or now // how.step
        parts.append(_steps(samples, how, end))
    first = end - how.points + 1
    rows = [_total([part.get(step) for part in parts]) for step in range(first, end + 1)]
    names = (*(f"{name}_per_minute" for name in TOTALS), *SIZES)
    start = datetime.fromtimestamp(first * how.step / 1000, UTC)
    fields = {"span": span, "start": start, "step_seconds": how.step // 1000}
    return History.model_validate(fields | dict(zip(names, zip(*rows, strict=True), strict=True)))


def _samples(base: str, how: _Resolution) -> Call[tuple[int, list[Sample]]]:
    def read(reply: Sequence[Any]) -> tuple[int, list[Sample]]:
        (seconds, micros), text = reply
        now = int(seconds) * 1000 + int(micros) // 1000
        since = (now // how.step - how.points - how.reach) * how.step
        found = (_parse(text[i : i + WIDTH], since, now) for i in range(0, len(text), WIDTH))
        return now, sorted(one for one in found if one)

    ring = HOURS if how.step == HOUR else MINUTES
    return together([("TIME",), ("GETRANGE", how.key(base), 0, ring * WIDTH - 1)], read)


def _parse(text: bytes, since: int, until: int) -> Sample | None:
    try:
        at = int(text[:13])
        if not since <= at <= until or len(text) != WIDTH:
            return None
        totals = tuple(int(text[i : i + 13]) for i in range(13, 91, 13))
        sizes = tuple(int(text[i : i + 9]) for i in range(91, 127, 9))
    except ValueError:  # another program wrote it
        return None
    return Sample(at, totals, sizes)


Row = tuple[Value, ...]
UNKNOWN: Row = (None,) * len(TOTALS)


def _steps(samples: Sequence[Sample], how: _Resolution, end: int) -> dict[int, Row]:
    """By step: rates since the sample before, then the last known sizes."""
    rates: dict[int, Row] = {}
    sizes: dict[int, Row] = {}
    for one, following in pairwise((*samples, None)):
        assert one  # only the last is None
        step = one.at // how.step
        until = following.at // how.step if following else min(end + 1, step + how.reach + 1)
        is_gap = until - step > how.reach + (following is None)
        sizes |= dict.fromkeys(range(step, step + 1 if is_gap else until), one.sizes)
        if following and not is_gap:
            rates |= dict.fromkeys(range(step + 1, until + 1), tuple(_rates(one, following)))
    return {step: (*rates.get(step, UNKNOWN), *row) for step, row in sizes.items()}


def _rates(one: Sample, following: Sample) -> Iterator[Value]:
    passed = following.at - one.at
    for before, after in zip(one.totals, following.totals, strict=True):
        yield (
            round(MINUTE * (after - before) / max(passed, MINUTE), 3) if passed and after >= before else None
        )


def _total(rows: Sequence[Row | None]) -> Row:
    width = len(TOTALS) + len(SIZES)
    columns = list(zip(*(row or (None,) * width for row in rows), strict=True))
    known = [[value for value in column if value is not None] for column in columns]
    whole = [len(values) == len(rows) for values in known]
    sums = [round(sum(values), 3) for values in known[:-1]] + [max(known[-1], default=0)]
    return tuple(value if is_whole else None for value, is_whole in zip(sums, whole, strict=True))
