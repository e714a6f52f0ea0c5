"""Read the jobs that have a tag, from the tag's index."""

from collections.abc import Sequence
from typing import Any

from sublet.protocol import keys
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call

OLDER = "*"
"""A member of an index, and (for tags without one) of `keys.tags`. Jobs submitted until its score (ms since
1970) may be missing in the index.
"""


def newest(
    base: str, tag: str, after_ms: int, latest_ms: int, start: int, count: int
) -> Call[list[tuple[str, int]]]:
    """Read the index of a tag, newest first: up to `count` jobs from the offset `start` on, submitted after
    `after_ms` and up to `latest_ms`. Returns (id, ms of submission), also of deleted jobs and of `OLDER`.
    """
    command = (
        "ZRANGE",
        keys.tag(base, tag),
        latest_ms,
        f"({after_ms}",
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


def lacking(base: str, tag: str) -> Call[int]:
    """Read up to which time of submission (ms since 1970) jobs may be missing in a tag's index; 0: none are."""
    index = keys.tag(base, tag)
    commands = [
        ("ZSCORE", keys.tags(base), tag),
        ("ZSCORE", keys.tags(base), OLDER),
        ("ZSCORE", index, OLDER),
    ]

    def read(reply: Sequence[Any]) -> int:
        used, of_deleted, of_this = reply
        return int(float((of_deleted if used is None else of_this) or 0))

    return together(commands, read)
