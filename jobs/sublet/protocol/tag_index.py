"""Reads of the index of a tag."""

from collections.abc import Sequence
from typing import Any

from sublet.protocol import keys
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call

TAGS = 10000
"""Indexes that a partition keeps."""


def newest(base: str, tag: str, latest_ms: int, start: int, count: int) -> Call[list[tuple[str, int]]]:
    """Read up to `count` jobs, newest first, each with its ms of submission: from `start` on of those up to `latest_ms`."""
    command = (
        "ZRANGE",
        keys.tag(base, tag),
        latest_ms,
        0,
        "BYSCORE",
        "REV",
        "LIMIT",
        start,
        count,
        "WITHSCORES",
    )

    def read(reply: Sequence[Any]) -> list[tuple[str, int]]:
        flat = (
            reply if not reply or isinstance(reply[0], bytes) else [part for pair in reply for part in pair]
        )
        return [(shown(flat[i]), int(float(flat[i + 1]))) for i in range(0, len(flat), 2)]

    return Call((command,), read)


def is_lost(base: str, tag: str) -> Call[bool]:
    """Read whether a tag's index may have been deleted because there were too many."""
    commands = [("ZSCORE", keys.tags(base), tag), ("ZCARD", keys.tags(base))]
    return together(commands, lambda reply: reply[0] is None and int(reply[1]) >= TAGS)
