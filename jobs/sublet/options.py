"""`Options` of a job, and their form in the protocol."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from sublet.errors import Invalid
from sublet.protocol.keys import check_name, is_key, stored_key

PAYLOAD_MAX = 256 * 1024
_LATEST = 10**14 - 1
TRIES_MAX = 999_999_999
TAGS_MAX = 5
TAG_MAX = 64
RETENTION_MIN = 60.0
LONGEST = 31_622_400.0
"""Most seconds of a retention, window or debounce: 366 days."""

Seconds = float | timedelta
Durability = Literal["none", "replicated", "fsync"]
"""Whose confirmation a submit waits for: of Redis alone (`none`), of replicas, or of the disk (`fsync`)."""


OnConflict = Literal["replace", "cancel_running"]
"""`replace`: a waiting job of the key gets the new arguments and options; beside a running one, a new job
waits for its end. `cancel_running`: the same, and the running job is cancelled.
"""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before a failed job is tried again: a random 50 to 100 % of a limit. The limit is `first`
    seconds after the first failure, `factor` times as much after each further one, up to `cap` seconds.
    """

    first: float = 1.0
    factor: float = 2.0
    cap: float = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a job: its queue, priority, times, tries, limits and retention."""

    queue: str = "default"
    priority: int = 0
    """-100 to 100; in a queue, jobs of a higher priority run first."""
    delay: Seconds = 0
    """Wait before the first try, in seconds or as a timedelta."""
    run_at: datetime | None = None
    """The time of the first try, with a time zone; not together with `delay`."""
    key: str | None = None
    """Deduplication key, any text. While an unfinished job of the queue has the key (with `window`: for that
    time), a submit stores nothing and returns that job, unless `debounce` or `on_conflict` is set.
    """
    window: Seconds | None = None
    """For how many seconds from the submit the key is in use, whether or not the job ends; None: until it ends."""
    debounce: Seconds | None = None
    """With a key: the job runs so many seconds after the last of several submits, with the last arguments."""
    at_most: Seconds | None = None
    """With `debounce`: the most seconds from the first submit until the job is due. None: no limit."""
    on_conflict: OnConflict | None = None
    """What a submit does to the unfinished jobs of its key (see `OnConflict`). None: see `key`."""
    max_attempts: int = 3
    """Number of tries: the job is dead when all are used. A release uses none, unless it follows 100 others
    in a row; a kept step renews all.
    """
    timeout: Seconds | None = 300.0
    """Most seconds of an attempt; None: no limit."""
    stall: Seconds | None = None
    """Most seconds, at least 1, without progress, checkpoint, step or chunk; then the attempt fails. None: no
    limit.
    """
    retention: Seconds = 86_400.0
    """How many seconds a completed job is kept, at least 60; a dead or cancelled one at least 14 days. Less
    if too many are kept.
    """
    backoff: Backoff | float = Backoff()
    """The wait after a failure. A number of seconds is the limit (see `Backoff`) after every failure."""
    keep_payload: bool = False
    """Keep the payload of a completed job, so that it can be submitted again. Else completion deletes it."""
    durability: Durability | None = None
    """The confirmation that the submit waits for: `none`, `replicated` or `fsync`. None: that of the settings."""
    tags: Sequence[str] = ()
    """Up to 5 labels by which jobs can be found: `("tenant:acme", "import")`."""
    group: str | Callable[..., str] | None = None
    """The group of the job within its queue, such as a tenant's name; or a function that returns it from
    the task's arguments of the same names: `lambda tenant: tenant`.
    """
    cost: int | Callable[..., int] = 1
    """How many tokens of the queue's and the group's rate each start uses; or a function, as for `group`."""

    def but(self, **changes: Any) -> "Options":
        """Return a copy with these options changed, unchecked. Raises Invalid for an unknown name."""
        unknown = sorted(set(changes) - set(self.__slots__))
        if unknown:
            raise Invalid(f"unknown option {', '.join(unknown)}: use {', '.join(self.__slots__)}")
        return replace(self, **changes)

    @property
    def by_arguments(self) -> bool:
        """Whether the group or the cost is a function of the arguments."""
        return callable(self.group) or callable(self.cost)

    def of(self, arguments: Any) -> "Options":
        """Return these options with group and cost computed from a job's arguments, by name. Raises Invalid."""
        found: dict[str, Any] = {"group": self.group, "cost": self.cost}
        for name, value in found.items():
            if callable(value):
                found[name] = _computed(name, value, arguments)
                if found[name] is None:
                    raise Invalid(
                        f"{name}: the task's function for it returned None: return a value for each job"
                    )
        return self.but(**found) if self.by_arguments else self

    def declared_rules(self) -> str | None:
        """Return the `rules` of a task's jobs; None if they depend on arguments. Raises Invalid."""
        rules = self.rules(declared=True)
        return None if self.by_arguments else rules

    def rules(self, *, declared: bool = False) -> str:
        """Return the options that differ from the defaults as text: `priority=5 tries=1`; without queue,
        durability and functions of arguments. With `declared`, as for a task, `debounce` and `on_conflict`
        may lack a key. Raises Invalid.
        """
        self._check()
        words = []
        if self.priority:
            words.append(f"priority={self.priority}")
        if self.debounce is not None or self.at_most is not None or self.on_conflict is not None:
            words += self._conflict_rules(declared)
        if self.run_at is not None:
            words.append(_at(self.run_at))
        elif self.delay:
            words.append(f"delay={milliseconds('delay', self.delay)}")
        if self.key is not None:
            words.append(f"key={stored_key(self.key)}")
            if self.window is not None:
                words.append(f"window={milliseconds('window', self.window, least=0.001, most=LONGEST)}")
        if self.max_attempts != 3:
            words.append(f"tries={self.max_attempts}")
        if self.timeout is None:
            words.append("timeout=none")
        elif self.timeout != 300.0:
            words.append(f"timeout={milliseconds('timeout', self.timeout, least=0.001)}")
        if self.stall is not None:
            words.append(f"stall={milliseconds('stall', self.stall, least=1)}")
        if self.retention != 86_400.0:
            words.append(f"retention={milliseconds('retention', self.retention, RETENTION_MIN, LONGEST)}")
        if self.backoff != Backoff():
            words.append(f"backoff={_backoff(self.backoff)}")
        if self.tags:
            words.append(f"tags={','.join(self.tags)}")
        if self.group is not None and not callable(self.group):
            words.append(f"group={self.group}")
        if self.cost != 1 and not callable(self.cost):
            words.append(f"cost={self.cost}")
        if self.keep_payload:
            words.append("keep=1")
        return " ".join(words)

    def _conflict_rules(self, declared: bool) -> list[str]:
        name = "on_conflict" if self.on_conflict is not None else "debounce"
        if self.debounce is None and self.at_most is not None:
            raise Invalid(
                "at_most without debounce: it ends the delays of a debounce: add debounce, or leave out at_most"
            )
        if self.key is None and not declared:
            raise Invalid(f"{name} without a key: give the deduplication key that it is for")
        if self.window is not None:
            raise Invalid(f"{name} and window: use one of them")
        if self.on_conflict is not None:
            if self.on_conflict not in get_args(OnConflict):
                raise Invalid(f"on_conflict {self.on_conflict!r}: use replace or cancel_running, or None")
            if self.debounce is not None:
                raise Invalid("debounce and on_conflict: use one of them: debounce replaces what waits")
            return [f"on_conflict={self.on_conflict}"]
        if self.delay or self.run_at is not None:
            raise Invalid("debounce sets the time of the first try: use no delay and no run_at with it")
        wait = milliseconds(
            "debounce", 0 if self.debounce is None else self.debounce, least=0.001, most=LONGEST
        )
        if self.at_most is None:
            return [f"debounce={wait}"]
        most = milliseconds("at_most", self.at_most, least=0.001, most=LONGEST)
        if most < wait:
            raise Invalid(f"at_most {most / 1000:g} s: use at least the debounce, {wait / 1000:g} s")
        return [f"debounce={wait}", f"at_most={most}"]

    def _check(self) -> None:
        check_name("queue", self.queue)
        if not (type(self.priority) is int and -100 <= self.priority <= 100):
            raise Invalid(f"priority {self.priority!r}: use a whole number from -100 to 100")
        if self.key is not None and not (isinstance(self.key, str) and self.key):
            raise Invalid(f"key {self.key!r}: use text of 1 character or more, or None for no key")
        if self.window is not None and self.key is None:
            raise Invalid("window without a key: give the deduplication key that is held for this time")
        if not (type(self.max_attempts) is int and 1 <= self.max_attempts <= TRIES_MAX):
            raise Invalid(
                f"max_attempts {str(self.max_attempts)[:40]}: use a whole number from 1 to {TRIES_MAX:,}"
            )
        if self.group is not None and not callable(self.group):
            check_group(self.group)
        if not callable(self.cost) and not (type(self.cost) is int and 1 <= self.cost <= _LATEST):
            raise Invalid(f"cost {str(self.cost)[:40]}: use a whole number from 1, of up to 14 digits")
        if type(self.keep_payload) is not bool:
            raise Invalid(f"keep_payload {self.keep_payload!r}: use True or False")
        check_durability(self.durability or "none")
        if self.tags != ():
            check_tags(self.tags)
        is_moment = isinstance(self.run_at, datetime) and self.run_at.tzinfo is not None
        if self.run_at is not None and (self.delay or not is_moment):
            raise Invalid(f"run_at {str(self.run_at)[:40]}: use a datetime with a time zone, and no delay")
        if self.run_at is not None and round(self.run_at.timestamp() * 1000) > _LATEST:
            raise Invalid(f"run_at {self.run_at}: use a time until 5138-11-16T09:46:39Z")


OF_SINGLE_JOBS: dict[str, Any] = dict.fromkeys(("key", "window", "debounce", "at_most", "on_conflict"))
"""Options that jobs of a schedule do not have, each None: `but(**…)` removes them."""


def _computed(name: str, function: Callable[..., Any], arguments: Any) -> Any:
    given = arguments if isinstance(arguments, Mapping) else {}
    asked = inspect.signature(function).parameters
    missing = [each for each, it in asked.items() if it.default is it.empty and each not in given]
    if missing:
        raise Invalid(
            f"{name}: the task's function for it needs {', '.join(missing)}: give that argument, or {name}"
        )
    return function(**{each: given[each] for each in asked if each in given})


def waiting_rules(run_at: datetime | None, delay: Seconds | None, priority: int | None) -> str:
    """Return the changes of a reschedule as text: `priority=5 delay=60000` (ms). Raises Invalid without a
    change, for an invalid value, or for both `run_at` and `delay`.
    """
    if run_at is None and delay is None and priority is None:
        raise Invalid("nothing to change: give run_at, delay or priority")
    if run_at is not None and delay is not None:
        raise Invalid("run_at and delay: use one of them, since a job has one new time")
    Options(priority=0 if priority is None else priority, run_at=run_at)._check()
    words = [] if priority is None else [f"priority={priority}"]
    if run_at is not None:
        words.append(_at(run_at))
    if delay is not None:
        words.append(f"delay={milliseconds('delay', delay)}")
    return " ".join(words)


def check_tags(tags: Sequence[str]) -> None:
    """Raise Invalid unless these are at most five different valid tags."""
    if not isinstance(tags, list | tuple):
        raise Invalid(f"tags {str(tags)[:80]!r}: use a tuple of texts, as in tags=('tenant:acme',)")
    for tag in tags:
        check_name("tag", tag, TAG_MAX)
    if len(set(tags)) < len(tags) or len(tags) > TAGS_MAX:
        raise Invalid(f"tags {', '.join(tags)[:400]}: use at most {TAGS_MAX} different ones")


def check_group(group: object) -> None:
    """Raise Invalid unless this is a valid group."""
    if not (isinstance(group, str) and is_key(group)) or group in (".", ".."):
        raise Invalid(
            f"group {str(group)[:80]!r}: use 1 to 128 visible ASCII characters, without blanks, but not . or .. alone, nor sha256: in front"
        )


def check_durability(word: str) -> None:
    """Raise Invalid unless `word` is a `Durability`."""
    if word not in get_args(Durability):
        raise Invalid(f"durability {word!r}: use {', '.join(get_args(Durability))}")


def milliseconds(name: str, value: Seconds, least: float = 0, most: float = 1e9) -> int:
    """Return a duration in whole ms. Raises Invalid, with `name`, unless it is `least` to `most` seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise Invalid(f"{name} {value!r}: use a finite number of seconds, or a timedelta")
    if seconds < least or seconds > most:
        raise Invalid(f"{name} {seconds:g} s: use {least:g} s or more, at most {most:.9g} s")
    return round(seconds * 1000)


def _at(moment: datetime) -> str:
    return f"at={max(0, round(moment.timestamp() * 1000))}"


def _backoff(backoff: Backoff | float) -> str:
    policy = backoff if isinstance(backoff, Backoff) else Backoff(backoff, 1.0, backoff)
    if not 1 <= policy.factor <= 1000:
        raise Invalid(f"backoff factor {policy.factor!r}: use 1 to 1000")
    return f"{milliseconds('backoff', policy.first)}:{policy.factor:.6g}:{milliseconds('backoff cap', policy.cap)}"
