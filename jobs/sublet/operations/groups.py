"""The groups of a queue: their jobs, and which limit holds each back."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from sublet.errors import Invalid
from sublet.model import Frozen, JobSummary, Page, State, Timestamp
from sublet.operations.statistics import QueueNumbers
from sublet.protocol import flow, keys
from sublet.protocol.plan import Plan
from sublet.protocol.reads import SECONDS, moment, number, pairs, shown, together
from sublet.protocol.scripts import Call

LOOKED = 100
LISTED = 1000
"""Most groups in one answer."""
OWN = ("concurrency", "rate", "per", "burst")
Shown = TypeVar("Shown", bound=JobSummary)
_WORD = re.compile(rb"(?:^| )(group_)?(concurrency|rate|per|burst|share)=([0-9]{1,14})(?= |\Z)")


class Group(Frozen):
    """A group of a queue: how many jobs it has, and its limits."""

    name: str
    """The group's name."""
    waiting: int = 0
    """How many jobs are queued."""
    running: int = 0
    """How many jobs run."""
    share: int = 1
    """How many turns the group gets for each turn of a group with share 1."""
    limits: dict[str, int | float] = Field(default={})
    """The limits that exist: `concurrency`, and `rate` (jobs of cost 1 in `per` seconds) with `burst`. They are the
    group's own settings, else those that the queue has for each group.
    """
    own: tuple[str, ...] = ()
    """The names of its own settings."""
    blocked: Literal["concurrency", "rate"] | None = None
    """Which limit of the group holds its next job back; None: none does."""
    next_at: Timestamp | None = None
    """The moment of the token for its next job; None if the group waits for no token."""


class Groups(Frozen):
    """Some groups of a queue: first those that a limit holds back, then others that wait, run or have settings."""

    groups: tuple[Group, ...] = ()
    """At most as many as were asked for."""
    waiting: int = 0
    """How many groups have queued jobs, all jobs without a group being one; 0 if `running` is None."""
    more: bool = False
    """Whether the queue has groups that are not listed here."""
    running: int | None = None
    """How many jobs of the queue run; None for a queue with neither groups nor limits (of concurrency or rate)."""
    blocked: Literal["concurrency", "rate"] | None = None
    """Which limit of the queue holds all its jobs back; None: none does."""
    next_at: Timestamp | None = None
    """The moment of the queue's next token; None if the queue waits for no token."""


class _Settings(NamedTuple):
    text: bytes
    queue: dict[str, float]
    each: dict[str, float]

    @property
    def by_turns(self) -> bool:
        return b" flow=1" in self.text


def groups(base: str, queue: str, limit: int = 100, group: str | None = None) -> Plan[Groups]:
    """Return up to `limit` groups of a queue that wait, run or have settings, first those that a limit holds back; or
    only `group`, even without jobs and settings. Raises Invalid for a limit that is not 1 to LISTED.
    """
    if not 1 <= limit <= LISTED:
        raise Invalid(f"limit {limit}: list 1 to {LISTED:,} groups")
    settings = _parsed((yield Call((("HGET", keys.queues(base), queue),), lambda text: text or b"")))
    waiting, names = yield _names(base, queue, limit)
    listed = names[:limit] if group is None else [group]
    found = (yield _details(base, queue, listed, settings)) if listed else []
    answer = Groups(groups=tuple(found), waiting=waiting, more=bool(set(names) - set(listed)))
    if not settings.by_turns:
        return answer
    places, full_at, now = yield from _state(base, queue)
    at = _allowed_at(full_at, settings.queue, 1)
    is_full = places >= settings.queue.get("concurrency", math.inf)
    return answer.model_copy(
        update={
            "running": places,
            "blocked": "concurrency" if is_full else "rate" if at > now else None,
            "next_at": moment(math.ceil(at)) if at > now else None,
        }
    )


def with_reasons(base: str, jobs: Sequence[Shown]) -> Plan[list[Shown]]:
    """Return these jobs with `waits_for`: words on the limit or pause that holds a queued one back, else
    None.
    """
    queued = [job for job in jobs if job.state is State.QUEUED]
    names = list(dict.fromkeys(job.queue for job in queued))
    texts = (yield Call((("HMGET", keys.queues(base), *names),), list)) if names else []
    reasons: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        settings, some = _parsed(text or b""), [job for job in queued if job.queue == name]
        if b" paused=" in settings.text:
            reasons |= dict.fromkeys((job.id for job in some), f"queue {name} is paused")
        elif settings.by_turns:
            reasons |= yield from _reasons(base, name, some, settings)
    return [job.model_copy(update={"waits_for": reasons.get(job.id)}) for job in jobs]


def with_reasons_of_all(base_of: Callable[[str], str], page: Page) -> Plan[Page]:
    """Return a page of jobs of several partitions with `waits_for`, as `with_reasons`."""
    found: dict[str, JobSummary] = {}
    for base in dict.fromkeys(base_of(job.id) for job in page.jobs):
        some = [job for job in page.jobs if base_of(job.id) == base]
        found |= {job.id: job for job in (yield from with_reasons(base, some))}
    return page.model_copy(update={"jobs": tuple(found[job.id] for job in page.jobs)})


def _reasons(base: str, queue: str, jobs: Sequence[JobSummary], settings: _Settings) -> Plan[dict[str, str]]:
    places, full_at, now = yield from _state(base, queue)
    names = list(dict.fromkeys(job.group for job in jobs if job.group))
    found: list[Group] = (yield _details(base, queue, names, settings)) if names else []
    reasons = {group.name: f"group {group.name}: {why}" for group in found if (why := _blocked(group))}
    blocked = {job.id: reasons[job.group] for job in jobs if job.group in reasons}
    for job in jobs:
        why = _queue_reason(settings.queue, places, full_at, now, job.cost)
        if job.id not in blocked and why:
            blocked[job.id] = f"queue {queue}: {why}"
    return blocked


def _blocked(group: Group) -> str | None:
    if group.blocked == "concurrency":
        return f"{group.running} of {group.limits['concurrency']} running"
    return f"the next token comes at {group.next_at:%H:%M:%S}Z" if group.blocked and group.next_at else None


def _state(base: str, queue: str) -> Plan[tuple[int, float, int]]:
    places, full_at, now = yield together(
        [("HLEN", keys.places(base, queue)), ("GET", keys.bucket(base, queue)), ("TIME",)],
        lambda reply: reply,
    )
    return int(places), float(full_at or 0), int(now[0]) * 1000 + int(now[1]) // 1000


def _queue_reason(limits: dict[str, float], places: int, full_at: float, now: int, cost: int) -> str | None:
    most, at = limits.get("concurrency"), _allowed_at(full_at, limits, cost)
    if most is not None and places >= most:
        return f"{places} of {most} running"
    if at > now:
        return f"the next token comes at {datetime.fromtimestamp(at / 1000, UTC):%H:%M:%S}Z"
    return None


def with_held(base: str, queues: Sequence[QueueNumbers]) -> Plan[list[QueueNumbers]]:
    """Return these numbers with `held`: about how many queued jobs limits hold back; 0 for a paused queue."""
    found = []
    for queue in queues:
        ready = queue.queued if queue.paused or not queue.by_turns else (yield from _startable(base, queue))
        found.append(replace(queue, held=max(0, queue.queued - ready)))
    return found


def _startable(base: str, queue: QueueNumbers) -> Plan[int]:
    """About how many jobs may start now, by the first LOOKED groups."""
    name = queue.name
    settings = _parsed((yield Call((("HGET", keys.queues(base), name),), lambda text: text or b"")))
    commands: tuple[tuple[Any, ...], ...] = (
        ("ZRANGE", keys.turns(base, name), 0, LOOKED - 1),
        ("ZCARD", keys.turns(base, name)),
    )
    commands += (
        ("ZCARD", keys.queue(base, name)),
        ("HLEN", keys.places(base, name)),
        ("GET", keys.bucket(base, name)),
    )
    turns, groups_waiting, plain, places, full_at, at = yield together(
        [*commands, ("TIME",)], lambda reply: reply
    )
    names = [shown(one) for one in turns]
    found: list[Group] = (
        (yield _details(base, name, [one for one in names if one], settings)) if any(names) else []
    )
    now = int(at[0]) * 1000 + int(at[1]) / 1000
    sums = int(plain) if "" in names else 0
    for group in found:
        room = group.limits.get("concurrency", math.inf) - group.running
        sums += int(max(0, min(group.waiting, room, 0 if group.blocked else group.waiting)))
    sums = int(sums * max(1, int(groups_waiting) / len(names))) if names else 0
    room = settings.queue.get("concurrency", math.inf) - int(places)
    return int(max(0, min(sums, room, _tokens(float(full_at or 0), settings.queue, now))))


def _tokens(full_at: float, limits: dict[str, float], now: float) -> float:
    if "rate" not in limits or "per" not in limits:
        return math.inf
    burst = limits.get("burst") or max(1, limits["rate"] * 100 // limits["per"])
    return math.floor(max(0, min(burst, burst - (full_at - now) * limits["rate"] / limits["per"])))


def _allowed_at(full_at: float, limits: dict[str, float], cost: int) -> float:
    if "rate" not in limits or "per" not in limits:
        return 0
    burst = limits.get("burst") or max(1, limits["rate"] * 100 // limits["per"])
    return full_at - max(0, burst - cost) * limits["per"] / limits["rate"]


def _parsed(text: bytes) -> _Settings:
    queue, each = dict[str, float](), dict[str, float]()
    for prefix, name, value in _WORD.findall(text):
        (each if prefix else queue)[name.decode()] = int(value)
    return _Settings(text, queue, each)


def _names(base: str, queue: str, limit: int) -> Call[tuple[int, list[str]]]:
    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        full, turns, more_full, more_turns, places, own = reply
        found = [*full, *turns, *pairs(places[1]).values(), *(name.encode() for name in pairs(own[1]))]
        return int(more_full) + int(more_turns), [name for name in dict.fromkeys(map(shown, found)) if name]

    sets = (keys.full(base, queue), keys.turns(base, queue))
    commands: list[tuple[Any, ...]] = [("ZRANGE", key, 0, limit) for key in sets]
    commands += [("ZCARD", key) for key in sets]
    commands += [
        ("HSCAN", key, 0, "COUNT", limit + 1) for key in (keys.places(base, queue), keys.groups(base, queue))
    ]
    return together(commands, read)


def _details(base: str, queue: str, names: Sequence[str], settings: _Settings) -> Call[list[Group]]:
    commands: list[tuple[Any, ...]] = [
        ("HMGET", keys.groups(base, queue), *names),
        ("ZMSCORE", keys.full(base, queue), *names),
        ("ZMSCORE", keys.tokens(base, queue), *names),
    ]
    commands += [("ZCARD", keys.waiting(base, queue, name)) for name in names]
    commands += [("SCARD", keys.group_places(base, queue, name)) for name in names]

    def read(reply: Sequence[Any]) -> list[Group]:
        own, full, token, *sizes = reply
        facts = zip(sizes[: len(names)], sizes[len(names) :], full, token, strict=True)
        return [
            _group(name, mine or b"", settings.each, some)
            for name, mine, some in zip(names, own, facts, strict=True)
        ]

    return together(commands, read)


def _group(name: str, own: bytes, each: dict[str, float], facts: Sequence[Any]) -> Group:
    waiting, running, full, token = facts
    given = {word.decode(): int(value) for _, word, value in _WORD.findall(own)}
    usual = {word: value for word, value in each.items() if word == "concurrency" or "rate" not in given}
    limits = {word: value for word, value in {**usual, **given}.items() if word in OWN}
    blocked: Literal["concurrency", "rate"] | None = None
    if full is not None or (int(waiting) and int(running) >= limits.get("concurrency", math.inf)):
        blocked = "concurrency" if token is None else "rate"
    return Group(
        name=name,
        waiting=int(waiting),
        running=int(running),
        share=given.get("share", 1),
        limits={word: value / 1000 if word in SECONDS else value for word, value in limits.items()},
        own=tuple(given),
        blocked=blocked,
        next_at=moment(token),
    )


def change(
    base: str, queue: str, revision: int, name: str, settings: dict[str, float | None], by: str
) -> Plan[str]:
    """Change settings of a group; None removes one, others stay. Returns all as text, `per` in ms. Raises
    Invalid, Changed.
    """
    unknown = sorted(set(settings) - {*OWN, "share"})
    if unknown:
        raise Invalid(f"{', '.join(unknown)}: the settings of a group are {', '.join(OWN)} and share")
    text: bytes = yield Call((("HGET", keys.groups(base, queue), name),), lambda reply: reply or b"")
    stored = {word.decode(): number(value) for _, word, value in _WORD.findall(text)}
    held: dict[str, float | None] = {
        word: value / 1000 if word in SECONDS else value for word, value in stored.items()
    }
    answer: str = yield flow.group(base, queue, revision, name, flow.words({**held, **settings}), by)
    return answer
