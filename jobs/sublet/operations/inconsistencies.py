"""Find metadata that no Sublet script writes. Readers skip it; `doctor --repair` reports it."""

import re
from typing import Any

from sublet.protocol import keys
from sublet.protocol.reads import PARTITIONS, pairs, together
from sublet.protocol.scripts import Call

_KNOWN = (
    rb"(?:jobs|bytes|completed|dead|cancelled|queues|paused)="  # a later version may have further settings
)
_SETTINGS = re.compile(rb"(?:[0-9]{1,14} [a-z]+(?: (?!%b(?![0-9]{1,14}(?: |\Z)))[^ =]+=[^ ]+)*)?" % _KNOWN)


def invalid_metadata(base: str) -> Call[list[str]]:
    """Find invalid queue names, queue settings and partition counts. Returns their fields: `<key> <field>`."""

    def read(reply: Any) -> list[str]:
        queues, number = reply
        found = (
            [
                f"{keys.queues(base)} {name}"
                for name, text in pairs(queues).items()
                if not _is_valid(name, text)
            ]
            if queues
            else []
        )
        return found + (
            [f"{base} partitions"] if number is not None and not PARTITIONS.fullmatch(number) else []
        )

    return together([("HGETALL", keys.queues(base)), ("HGET", base, "partitions")], read)


def _is_valid(name: str, settings: bytes) -> bool:
    return bool(keys.is_name(name) or name == "*") and _SETTINGS.fullmatch(settings) is not None
