"""What a partition says of itself and of its queues, and no script has written: `sublet.protocol.reads` passes over it, a repair tells."""

import re
from typing import Any

from sublet.protocol import keys
from sublet.protocol.reads import PARTITIONS, pairs, together
from sublet.protocol.scripts import Call

_KNOWN = rb"(?:jobs|bytes|completed|dead|cancelled|paused)="  # a later version's may say more
_SETTINGS = re.compile(rb"(?:[0-9]{1,14} [a-z]+(?: (?!%b(?![0-9]{1,14}(?: |\Z)))[^ =]+=[^ ]+)*)?" % _KNOWN)


def odd(base: str) -> Call[list[str]]:
    """The fields, each behind its key: names and settings of queues, and a number of partitions with which nobody can go on."""

    def read(reply: Any) -> list[str]:
        queues, number = reply
        found = (
            [f"{keys.queues(base)} {name}" for name, text in pairs(queues).items() if not _can_be(name, text)]
            if queues
            else []
        )
        return found + (
            [f"{base} partitions"] if number is not None and not PARTITIONS.fullmatch(number) else []
        )

    return together([("HGETALL", keys.queues(base)), ("HGET", base, "partitions")], read)


def _can_be(name: str, settings: bytes) -> bool:
    return bool(keys.is_name(name) or name == "*") and _SETTINGS.fullmatch(settings) is not None
