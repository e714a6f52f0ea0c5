"""How a namespace is forgotten: plans without I/O, in steps, so that nobody else waits for it.

First every partition is marked, and from then on no verb writes there; then all keys but the marks go, and the marks at the last.
Whoever is interrupted leaves marks, and the next one goes on from there. The script that deletes sees that nobody writes there:
who was held up, and comes back when the partition was made anew, deletes nothing of it, and stops.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sublet.errors import Invalid, OutOfMemory, Unfit
from sublet.protocol import keys, reads, server_info, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call

PAGE = 1000
"""Keys that one step of a walk takes, about, and that one call deletes, at most."""
PARTITIONS = 64
"""Partitions that are looked for in a cluster, at least: there nobody can walk through all keys of all nodes."""
PASSES = 5
"""How often all keys are walked through: a walk may miss what is written while it goes on."""
ALIVE = 15.0
"""Seconds for which a worker counts as alive that was heard of."""


class Content(NamedTuple):
    """What a namespace has."""

    keys: dict[str, int]
    """Partition's base → how many keys begin with it."""
    jobs: dict[str, int]
    """State → how many jobs are in it; empty where it cannot be read."""
    live: list[str]
    """The workers that were heard of in the last 15 s."""


def contents(namespace: str, spread: int = 0) -> Plan[Content]:
    """Look at what a namespace has, in all its partitions, however many there are. Raises Invalid for what is no name.

    In a cluster, `spread` is how many partitions there are, as far as is known (see `widest`).
    """
    found: Counter[str] = Counter()
    yield from _each(namespace, spread, lambda names: found.update(_base(name) for name in names))
    states: Counter[str] = Counter()
    now: datetime = yield server_info.clock()
    live: list[str] = []
    for base in found:
        try:
            names: list[str] = yield reads.queues(base)
            stats = yield reads.stats(base, names)
            states.update({state.value: number for state, number in stats.states.items()})
            live += yield _alive(base, round((now.timestamp() - ALIVE) * 1000))
        except (Unfit, *reads.MALFORMED):
            continue
    return Content(dict(sorted(found.items(), key=lambda item: _number(item[0]))), dict(states), sorted(live))


def drop(namespace: str, spread: int = 0, tell: Callable[[int], None] = lambda deleted: None) -> Plan[int]:
    """Forget a namespace: how many keys were deleted.

    Raises WrongLayout where it is of another version's, Changed where somebody else has dropped it and it was made anew.
    """
    bases: set[str] = set()
    yield from _each(namespace, spread, lambda names: bases.update(_base(name) for name in names))
    for base in sorted(bases):
        yield from _mark(base, bases)
    deleted = 0

    def delete(names: list[str]) -> Plan[None]:
        nonlocal deleted
        for base in sorted({_base(name) for name in names}):
            if base not in bases:  # it was made while this went on
                yield from _mark(base, bases)
                bases.add(base)
            found = [name for name in names if _base(name) == base and name != base]
            for i in range(0, len(found), PAGE):
                deleted += yield _unlink(base, found[i : i + PAGE])
        tell(deleted)

    for _ in range(PASSES):
        before = deleted
        yield from _each(namespace, spread, delete)
        if deleted == before:
            break
    for base in sorted(
        bases, key=_number, reverse=True
    ):  # in a cluster the first ones say how many there are
        deleted += yield _unlink(base, [base])
    return deleted


def widest(namespace: str, spread: int) -> Plan[int]:
    """How many partitions to look for in a cluster: as many as this process was told, or one of the first bases says."""
    return max(spread, (yield from _said(keys.base(namespace, i) for i in range(max(spread, PARTITIONS)))))


def _mark(base: str, bases: Collection[str]) -> Plan[None]:
    """Have no verb write to a partition any more. What has no base gets one, so that nobody else makes it."""
    try:
        if (yield reads.layout(base)) == "":
            yield verbs.init(base, (yield from _said(bases)) or min(len(bases), 9999))
        yield verbs.drop(base, (yield _submitted(base)))
    except OutOfMemory:  # it has no base, and there is no room for one: nobody else can make it either
        return
    except Unfit:  # its base is no hash: every verb stops at it as it is
        return


def _said(bases: Iterable[str]) -> Plan[int]:
    """How many partitions there are, as these bases say; 0 where none does. What is no hash says nothing."""
    most = 0
    for base in bases:
        try:
            most = max(most, (yield reads.partitions(base)))
        except Unfit:
            continue
    return most


def _submitted(base: str) -> Call[int]:
    """How many jobs were submitted; 0 where that is no number of up to 14 digits, as the script has it."""

    def read(reply: bytes | None) -> int:
        return int(reply) if reply and reply.isdigit() and len(reply) <= reads.DIGITS else 0

    return Call((("HGET", base, "submitted"),), read)


def _each(namespace: str, spread: int, see: Callable[[list[str]], Plan[None] | None]) -> Plan[None]:
    """Walk through all keys of a namespace: of the server, or in a cluster of one partition after the other."""
    if not keys.is_name(namespace):
        raise Invalid(f"namespace {namespace[:130]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")
    patterns = [] if spread else [f"{{{namespace}:*"]
    for i in range(max(spread, PARTITIONS) if spread else 0):
        base = keys.base(namespace, i)
        if i < spread or (yield _exists(base)):
            patterns.append(f"{base}*")
    for pattern in patterns:
        cursor, more = 0, True
        while more:
            cursor, found = yield _page(namespace, pattern, cursor)
            yield from see(found) or ()
            more = cursor != 0


def _base(key: str) -> str:
    return key[: key.index("}") + 1]


def _number(base: str) -> int:
    return int(base.rpartition(":")[2][:-1])


def _exists(base: str) -> Call[bool]:
    return Call((("EXISTS", base),), bool)


def _page(namespace: str, pattern: str, cursor: int) -> Call[tuple[int, list[str]]]:
    """Some keys of a namespace, and the cursor of the next ones. `ns` is not the namespace of `{ns:a:0}`, nor of `{ns:0:1}`."""
    own = re.compile(rf"\{{{re.escape(namespace)}:(?:0|[1-9][0-9]{{0,5}})\}}(?::|\Z)")

    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        names = [key.decode("utf-8", "surrogateescape") for key in reply[1]]
        return int(reply[0]), [name for name in names if own.match(name)]

    return Call((("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE),), read)


def _unlink(base: str, names: Sequence[str]) -> Call[int]:
    """Delete keys of a partition whose verbs refuse. How many. Raises Changed where they do so no more."""
    call = verbs.drop(base, 0, [name.encode("utf-8", "surrogateescape") for name in names])
    return Call(call.commands, lambda reply: int(reply.split()[1]), call.text)


def _alive(base: str, since: int) -> Call[list[str]]:
    """The workers that were heard of since a moment."""
    command = ("ZRANGE", keys.workers(base), since, reads.LAST, "BYSCORE", "LIMIT", 0, PAGE)
    return Call((command,), lambda reply: [name.decode("utf-8", "replace") for name in reply])
