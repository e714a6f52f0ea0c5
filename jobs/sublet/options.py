"""What a submitter may ask for beside the task and its arguments, checked at the edge and spelled as the protocol's rules."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from sublet.errors import Invalid
from sublet.protocol.keys import is_key, is_name

PAYLOAD_MAX = 256 * 1024
"""Bytes that a payload or a result may have."""
_LATEST = 10**14 - 1
"""The last moment that the scripts know, in ms: in the year 5138."""
RETENTION_MIN = 60.0
"""Seconds that a finished job is kept at least."""

Seconds = float | timedelta
"""A duration: seconds, or a timedelta."""
Durability = Literal["none", "replicated", "fsync"]
"""What a submit waits for before it is acknowledged: Redis itself, replicas, or Redis's disk (`docs/guides/durability.md`)."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next try: `first` seconds, times `factor` for each further one, at most `cap` seconds.

    Half of each delay is jitter, so that jobs which failed together do not come back together.
    """

    first: float = 1.0
    factor: float = 2.0
    cap: float = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is to be kept and run. The defaults are those of the protocol, and cost nothing in Redis."""

    queue: str = "default"
    priority: int = 0
    """-100 to 100; higher goes first."""
    delay: Seconds = 0
    """How long to wait before the first try."""
    run_at: datetime | None = None
    """The moment of the first try, with a time zone; instead of a delay."""
    key: str | None = None
    """While a job with this key is unfinished in its queue, another submit answers with that job."""
    window: Seconds | None = None
    """Let the key stand for this long from submit, instead of until the job ends."""
    max_attempts: int = 3
    """Tries before the job is dead; one that was released does not count."""
    timeout: Seconds | None = 300.0
    """How long one attempt may take; None for no limit."""
    retention: Seconds = 86_400.0
    """How long a completed job is kept; at least 60 s. Dead and cancelled ones are kept 14 days, or this if longer."""
    backoff: Backoff | float = Backoff()
    durability: Durability | None = None
    """What submit waits for; None for what SUBLET_DURABILITY says."""

    def but(self, **changes: Any) -> "Options":
        """The same with some changes. Raises Invalid for a name that is no option."""
        unknown = sorted(set(changes) - set(self.__slots__))
        if unknown:
            raise Invalid(f"unknown option {', '.join(unknown)}: there are {', '.join(self.__slots__)}")
        return replace(self, **changes)

    def rules(self) -> str:
        """The words that differ from the defaults, as `submit` takes them. Raises Invalid where one makes no sense."""
        self._check()
        words = []
        if self.priority:
            words.append(f"priority={self.priority}")
        if self.run_at is not None:
            words.append(f"at={min(max(0, round(self.run_at.timestamp() * 1000)), _LATEST)}")
        elif self.delay:
            words.append(f"delay={_ms('delay', self.delay)}")
        if self.key is not None:
            words.append(f"key={self.key}")
            if self.window is not None:
                words.append(f"window={_ms('window', self.window, least=0.001)}")
        if self.max_attempts != 3:
            words.append(f"tries={self.max_attempts}")
        if self.timeout is None:
            words.append("timeout=none")
        elif self.timeout != 300.0:
            words.append(f"timeout={_ms('timeout', self.timeout, least=0.001)}")
        if self.retention != 86_400.0:
            words.append(f"retention={_ms('retention', self.retention, least=RETENTION_MIN)}")
        if self.backoff != Backoff():
            words.append(f"backoff={_backoff(self.backoff)}")
        return " ".join(words)

    def _check(self) -> None:
        if not is_name(self.queue):
            raise Invalid(f"queue {self.queue[:80]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")
        if not (isinstance(self.priority, int) and -100 <= self.priority <= 100):
            raise Invalid(f"priority {self.priority!r}: use a whole number from -100 to 100")
        if self.key is not None and not is_key(self.key):
            raise Invalid(f"key {self.key[:80]!r}: use 1 to 128 visible ASCII characters")
        if self.window is not None and self.key is None:
            raise Invalid("window without a key: give the key that it is for")
        if not (isinstance(self.max_attempts, int) and self.max_attempts >= 1):
            raise Invalid(f"max_attempts {self.max_attempts!r}: use a whole number from 1")
        check_durability(self.durability or "none")
        if self.run_at is not None and (self.delay or self.run_at.tzinfo is None):
            raise Invalid("run_at: give a moment with a time zone, and no delay beside it")


def check_durability(word: str) -> None:
    """Raise Invalid for what is no `Durability`."""
    if word not in get_args(Durability):
        raise Invalid(f"durability {word!r}: use {', '.join(get_args(Durability))}")


def _ms(name: str, value: Seconds, least: float = 0) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise Invalid(f"{name} {value!r}: use a number of seconds")
    if seconds < least or seconds > 1e9:
        raise Invalid(f"{name} {seconds:g} s: use {least:g} s or more, up to 30 years")
    return round(seconds * 1000)


def _backoff(backoff: Backoff | float) -> str:
    policy = backoff if isinstance(backoff, Backoff) else Backoff(backoff, 1.0, backoff)
    if not 1 <= policy.factor <= 1000:
        raise Invalid(f"backoff factor {policy.factor!r}: use 1 to 1000")
    return f"{_ms('backoff', policy.first)}:{policy.factor:.6g}:{_ms('backoff cap', policy.cap)}"
