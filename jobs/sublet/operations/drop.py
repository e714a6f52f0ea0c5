"""Delete a namespace in small steps, so that other clients do not wait. Each partition is marked first, so
that all scripts refuse calls there. The marks are deleted last, so a drop can be repeated.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sublet.errors import OutOfMemory, Unfit
from sublet.protocol import keys, queue_names, reads, server_info, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call

PAGE = 1000
PARTITIONS = 64
"""In a cluster, which has no list of partitions, at least so many are searched."""
PASSES = 5
"""Most searches through all keys: one may miss keys that are written meanwhile."""
ALIVE = 15.0


class Content(NamedTuple):
    """What is in a namespace, to be shown before it is deleted."""

    keys: dict[str, int]
    """Number of keys by partition (`{sublet:0}`)."""
    jobs: dict[str, int]
    """Number of jobs by state."""
    live: list[str]
    """Names of workers that sent a heartbeat in the last 15 s."""
    unread: int
    """How many partitions could not be read, and are missing in `jobs` and `live`."""


def contents(namespace: str, spread: int = 0) -> Plan[Content]:
    """Return what is in a namespace. `spread`: in a cluster, how many partitions to search at least; else 0.
    Raises Invalid.
    """
    found: Counter[str] = Counter()
    yield from _each(namespace, spread, lambda names: found.update(_base(name) for name in names))
    states: Counter[str] = Counter()
    now: datetime = yield server_info.clock()
    live: list[str] = []
    unread = 0
    for base in found:
        try:
            stats = yield from queue_names.stats(base)
            states.update({state.value: number for state, number in stats.states.items()})
            live += yield _alive(base, round((now.timestamp() - ALIVE) * 1000))
        except (Unfit, *reads.MALFORMED):
            unread += 1
    ordered = dict(sorted(found.items(), key=lambda item: _number(item[0])))
    return Content(ordered, dict(states), sorted(live), unread)


def drop(namespace: str, spread: int = 0, report: Callable[[int], None] = lambda deleted: None) -> Plan[int]:
    """Delete a namespace; return how many keys. After each step, `report` gets the number so far. `spread`: as in
    `contents`. Raises Invalid; Changed if a partition was created again meanwhile; WrongLayout if another version
    wrote it.
    """
    bases: set[str] = set()
    yield from _each(namespace, spread, lambda names: bases.update(_base(name) for name in names))
    for base in sorted(bases):
        yield from _mark(base, bases)
    deleted = 0

    def delete(names: list[str]) -> Plan[None]:
        nonlocal deleted
        for base in sorted({_base(name) for name in names}):
            if base not in bases:  # created during the scan
                yield from _mark(base, bases)
                bases.add(base)
            found = [name for name in names if _base(name) == base and name != base]
            for i in range(0, len(found), PAGE):
                deleted += yield _unlink(base, found[i : i + PAGE])
        report(deleted)

    for _ in range(PASSES):
        before = deleted
        yield from _each(namespace, spread, delete)
        if deleted == before:
            break
    for base in sorted(
        bases, key=_number, reverse=True
    ):  # in a cluster the first ones contain the partition count
        deleted += yield _unlink(base, [base])
    return deleted


def widest(namespace: str, spread: int) -> Plan[int]:
    """Return how many partitions to search in a cluster: `spread`, or a higher stored partition count."""
    return max(
        spread, (yield from _stored_count(keys.base(namespace, i) for i in range(max(spread, PARTITIONS))))
    )


def _mark(base: str, bases: Collection[str]) -> Plan[None]:
    # A missing base is created first, so that clients cannot
    try:
        if (yield reads.layout(base)) == "":
            yield verbs.init(base, (yield from _stored_count(bases)) or min(len(bases), 9999))
        yield verbs.drop(base, (yield _submitted(base)))
    except OutOfMemory:  # missing, and clients cannot create one on a full server
        return
    except Unfit:  # not a hash: every verb refuses already
        return


def _stored_count(bases: Iterable[str]) -> Plan[int]:
    most = 0
    for base in bases:
        try:
            most = max(most, (yield reads.partitions(base)))
        except Unfit:
            continue
    return most


def _submitted(base: str) -> Call[int]:

    def read(reply: bytes | None) -> int:
        return int(reply) if reply and reply.isdigit() and len(reply) <= reads.DIGITS else 0

    return Call((("HGET", base, "submitted"),), read)


def _each(namespace: str, spread: int, visit: Callable[[list[str]], Plan[None] | None]) -> Plan[None]:
    keys.check_name("namespace", namespace)
    patterns = [] if spread else [f"{{{namespace}:*"]
    for i in range(max(spread, PARTITIONS) if spread else 0):
        base = keys.base(namespace, i)
        if i < spread or (yield _exists(base)):
            patterns.append(f"{base}*")
    for pattern in patterns:
        cursor, more = 0, True
        while more:
            cursor, found = yield _page(namespace, pattern, cursor)
            yield from visit(found) or ()
            more = cursor != 0


def _base(key: str) -> str:
    return key[: key.index("}") + 1]


def _number(base: str) -> int:
    return int(base.rpartition(":")[2][:-1])


def _exists(base: str) -> Call[bool]:
    return Call((("EXISTS", base),), bool)


def _page(namespace: str, pattern: str, cursor: int) -> Call[tuple[int, list[str]]]:
    # `{ns:a:0}` and `{ns:0:1}` do not belong to namespace `ns`
    own = re.compile(rf"\{{{re.escape(namespace)}:(?:0|[1-9][0-9]{{0,5}})\}}(?::|\Z)")

    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        names = [key.decode("utf-8", "surrogateescape") for key in reply[1]]
        return int(reply[0]), [name for name in names if own.match(name)]

    return Call((("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE),), read)


def _unlink(base: str, names: Sequence[str]) -> Call[int]:
    call = verbs.drop(base, 0, [name.encode("utf-8", "surrogateescape") for name in names])
    return Call(call.commands, lambda reply: int(reply.split()[1]), call.text)


def _alive(base: str, since: int) -> Call[list[str]]:
    command = ("ZRANGE", keys.workers(base), since, reads.LAST, "BYSCORE", "LIMIT", 0, PAGE)
    return Call((command,), lambda reply: [name.decode("utf-8", "replace") for name in reply])
