"""Read the queues of a partition in pages."""

import math
from collections.abc import Sequence
from typing import Any

from sublet.model import State, Stats
from sublet.protocol import keys, reads
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call

PAGE = 1000
"""About how many names of queues a page has; all of them, if there are fewer."""
FIRST, GROWTH = 8, 16
"""With a `room`: how many lengths the first call reads; by which factor each further one reads more."""
_STEPS = 10


def page(base: str, cursor: int = 0) -> Plan[tuple[dict[str, bytes], int]]:
    """Return some names of known queues with their settings as stored, and the next page's cursor; 0 at the
    end. Only the page itself is sorted, and a name may be on two pages.
    """
    found: dict[str, bytes] = {}
    for _ in range(_STEPS):
        queues, cursor = yield _scan(base, cursor)
        found |= queues
        if not cursor or len(found) >= PAGE:
            break
    return dict(sorted(found.items())), cursor


def names(base: str) -> Plan[list[str]]:
    """Return the names of all known queues, sorted."""
    found, cursor = yield from page(base)
    while cursor:
        more, cursor = yield from page(base, cursor)
        found |= more
    return sorted(found)


def lengths(base: str, kind: str, queues: Sequence[str], room: float = math.inf) -> Plan[list[int]]:
    """Return the number of queued jobs of these queues, without a group (`kind` is `queue`) or with one
    (`grouped`). The list may end early once the sum reaches `room`.
    """
    if not queues or not (yield Call((("EXISTS", *(f"{base}:{kind}:{name}" for name in queues)),), int)):
        return [0] * len(queues)
    found: list[int] = []
    step = len(queues) if room == math.inf else FIRST
    while len(found) < len(queues) and sum(found) < room:
        some = queues[len(found) : len(found) + step]
        found += yield reads.together([("ZCARD", f"{base}:{kind}:{name}") for name in some], _numbers)
        step *= GROWTH
    return found


def _numbers(reply: Sequence[Any]) -> list[int]:
    return [int(length) for length in reply]


def stats(base: str) -> Plan[Stats]:
    """Return the number of a partition's jobs by state, its totals, and its last maintenance."""
    queues, cursor = yield from page(base)
    found: Stats = yield reads.stats(base, queues)
    queued = found.states[State.QUEUED]
    while cursor:
        queues, cursor = yield from page(base, cursor)
        for kind in ("queue", "grouped"):
            queued += sum((yield from lengths(base, kind, [*queues])))
    return found.model_copy(update={"states": {**found.states, State.QUEUED: queued}})


def _scan(base: str, cursor: int) -> Call[tuple[dict[str, bytes], int]]:

    def read(reply: Sequence[Any]) -> tuple[dict[str, bytes], int]:
        return {name: text for name, text in reads.pairs(reply[1]).items() if keys.is_name(name)}, int(
            reply[0]
        )

    return Call((("HSCAN", keys.queues(base), cursor, "COUNT", PAGE),), read)
