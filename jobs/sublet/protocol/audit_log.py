"""The audit: a capped Redis stream of the commands that people gave."""

from collections.abc import Sequence
from typing import Any

from sublet.protocol import keys, verbs
from sublet.protocol.person import person
from sublet.protocol.plan import Plan
from sublet.protocol.reads import pairs, shown
from sublet.protocol.scripts import Call


def record(base: str, verb: str, what: str, queue: str, outcome: str, order: str = "") -> Plan[None]:
    """Write a command to the audit; again with the same `order` (its id; empty: a new one), replace its
    entry's outcome. Without a `person`, nothing is written.
    """
    if person():
        yield verbs.audit(base, order or keys.new_claim_id(), person(), verb, what, queue, outcome)


def outcome(base: str, order: str) -> Call[str]:
    """Read the recorded outcome of an `order`; empty if its entry is not among the last 100."""

    def read(reply: Sequence[Any]) -> str:
        found = (pairs(entry[1]) for entry in reply or ())
        return next((shown(one["outcome"]) for one in found if one.get("order") == order.encode()), "")

    return Call((("XREVRANGE", keys.audit(base), "+", "-", "COUNT", 100),), read)


def entries(base: str, end: str, count: int) -> Call[list[tuple[str, dict[str, str]]]]:
    """Read up to `count` entries of the audit, newest first, from the id `end` (`+`: the newest) back: id
    and fields.
    """

    def read(reply: Sequence[Any]) -> list[tuple[str, dict[str, str]]]:
        return [
            (entry[0].decode(), {k: shown(v) for k, v in pairs(entry[1]).items()}) for entry in reply or ()
        ]

    return Call((("XREVRANGE", keys.audit(base), end, "-", "COUNT", count),), read)
