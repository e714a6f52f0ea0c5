"""The data model of pools, and its checks."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from sublet.errors import Invalid
from sublet.model import InSeconds, Timestamp
from sublet.protocol.keys import check_name, is_name

Kind = Literal["process", "http", "lambda", "none"]
KINDS: tuple[Kind, ...] = ("process", "http", "lambda", "none")
"""How workers are started: as processes of this machine, by a POST to a URL, by AWS Lambda, or not by Sublet."""
QUEUES_MAX, WORKERS_MAX, SLOTS_MAX, SECONDS_MAX, TARGET_MAX = 32, 1000, 10_000, 86_400.0, 1024
HIDDEN = "…"

_WHOLE, _DURATIONS = ("min", "max", "slots"), ("wait", "linger", "arrive")
_STORED = re.compile(r"(\d+)((?: \w+=\S+)+)\n(.*)", re.DOTALL)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Sum(_Frozen):
    """How many workers a pool needs now, and why."""

    ready: int
    """How many jobs a worker could claim now."""
    running: int
    rate: float
    """Jobs per second that became ready, a recent average; 0 after a pause."""
    run: InSeconds
    """Seconds that an attempt takes: the average of about 20, more while attempts run longer; at first 1."""
    need: float
    """About how many jobs must run at a time so that none waits longer than `wait`; at least `running`."""
    wanted: int
    """How many workers `need` requires, between the pool's `min` and `max`."""
    crew: int
    """How many of the pool's workers have sent a heartbeat in the last 12 s."""
    summoned: int
    """How many workers are summoned and not registered yet."""
    owed: int
    """How many workers to summon now: `wanted` less `crew` and `summoned`, at least 0."""


class Pool(_Frozen):
    """A stored pool: its queues, how their workers are started, and counters."""

    name: str
    queues: tuple[str, ...]
    invoker: Kind = "none"
    target: str = ""
    """The URL (`http`) or function (`lambda`) that starts a worker; else empty."""
    min: int = 0
    """How many workers to keep even without jobs."""
    max: int = 10
    wait: InSeconds = 5.0
    """How many seconds a job should wait at most."""
    slots: int = 10
    linger: InSeconds = 5.0
    """How many seconds a worker without jobs waits before it asks to leave."""
    arrive: InSeconds = 15.0
    """How many seconds an invoked worker has to register; else it is `lost`, and may be replaced."""
    revision: int = 0
    summoned: int = 0
    arrived: int = 0
    lost: int = 0
    """How many summoned workers did not register in time."""
    failures: int = 0
    """How many summoned workers could not be invoked."""
    failed_at: Timestamp | None = None
    failure: str = ""
    sum: Sum | None = None

    @property
    def settings(self) -> str:
        """The settings, without the target, for the script `pool`: `queues=a,b min=0 …`, durations in ms."""
        whole = [f"{name}={getattr(self, name)}" for name in _WHOLE]
        durations = [f"{name}={round(getattr(self, name) * 1000)}" for name in _DURATIONS]
        return " ".join([f"queues={','.join(self.queues)}", f"invoker={self.invoker}", *whole, *durations])

    @property
    def shown(self) -> "Pool":
        """A copy whose target has no secrets."""
        return self.model_copy(update={"target": shown(self.target)})


def check(pool: Pool) -> None:
    """Raise Invalid for an invalid name or setting. A target may be any short line that is not masked."""
    check_name("pool", pool.name)
    for queue in pool.queues:
        check_name("queue", queue)
    if not 1 <= len(pool.queues) <= QUEUES_MAX or len(set(pool.queues)) < len(pool.queues):
        raise Invalid(f"queues: give 1 to {QUEUES_MAX} names, each once")
    if pool.invoker not in KINDS:
        raise Invalid(f"invoker {str(pool.invoker)[:40]!r}: use one of {', '.join(KINDS)}")
    if not 0 <= pool.min <= pool.max <= WORKERS_MAX:
        raise Invalid(f"min={pool.min} max={pool.max}: use 0 ≤ min ≤ max ≤ {WORKERS_MAX:,}")
    if not 1 <= pool.slots <= SLOTS_MAX:
        raise Invalid(f"slots={pool.slots}: a worker runs 1 to {SLOTS_MAX:,} jobs at a time")
    for name, least in (("wait", 0.001), ("linger", 0.0), ("arrive", 0.1)):
        if not least <= getattr(pool, name) <= SECONDS_MAX:
            raise Invalid(f"{name}={getattr(pool, name):g}: use {least:g} to {SECONDS_MAX:,.0f} seconds")
    if HIDDEN in pool.target:
        raise Invalid(
            f"target {pool.target[:200]!r}: this is the masked form; write out what the {HIDDEN} stands for"
        )
    if len(pool.target.encode("utf-8", "replace")) > TARGET_MAX or not pool.target.isprintable():
        raise Invalid(f"target: use at most {TARGET_MAX:,} bytes of printable text, on one line")


def shown(target: str) -> str:
    """Return a target. In a URL, `…` replaces user, password, query and fragment; an invalid URL becomes `…`."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return HIDDEN
    if not parts.netloc:
        return target
    _, at, host = parts.netloc.rpartition("@")
    rest = f"{parts.scheme}://{f'{HIDDEN}@' if at else ''}{host}{parts.path}"
    return f"{rest}?{HIDDEN}" if parts.query or parts.fragment else rest


def pool_from(name: str, stored: str, counted: Mapping[str, str]) -> Pool:
    """Parse a stored pool: `<revision> <settings>` and a line with the target; `counted` are its counters. Raises
    ValueError, KeyError, OSError, OverflowError.
    """
    found = _STORED.fullmatch(stored)
    if not found:
        raise ValueError(
            f"the stored settings of pool {name[:80]} are invalid: set it again (`sublet pools set`)"
        )
    fields: dict[str, Any] = dict(word.split("=", 1) for word in found[2].split())
    fields |= {each: int(fields[each]) for each in _WHOLE if each in fields}
    fields |= {each: int(fields[each]) / 1000 for each in _DURATIONS if each in fields}
    counts = {each: int(counted.get(each) or 0) for each in ("summoned", "arrived", "lost")}
    failed_at = (
        datetime.fromtimestamp(int(counted["failed_at"]) / 1000, UTC) if counted.get("failed_at") else None
    )
    failed = {
        "failures": int(counted.get("failed") or 0),
        "failed_at": failed_at,
        "failure": counted.get("reason") or "",
    }
    how = {"name": name, "target": found[3], "revision": int(found[1])}
    queues = tuple(fields["queues"].split(","))
    if not all(map(is_name, queues)):
        raise ValueError(
            f"the stored settings of pool {name[:80]} are invalid: set it again (`sublet pools set`)"
        )
    return Pool.model_validate({**fields, "queues": queues, **counts, **failed, **how})


def sum_from(numbers: Mapping[str, int]) -> Sum:
    """Make a `Sum` of the numbers that the script `summon` returns."""
    parts = {name: numbers[name] / 1000 for name in ("rate", "run", "need")}
    whole = {name: numbers[name] for name in ("ready", "running", "wanted", "crew", "summoned", "owed")}
    return Sum.model_validate(parts | whole)
