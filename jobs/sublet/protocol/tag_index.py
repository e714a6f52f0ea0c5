"""Reads of the index of a tag."""

from collections.abc import Sequence
from typing import Any

from sublet.protocol import keys
from sublet.protocol.reads import shown, together
from sublet.protocol.scripts import Call

OLDER = "*"
"""Member of an index, and of the tags: its score is the ms up to which the index, or an absent one, may lack jobs."""


def newest(
    base: str, tag: str, after_ms: int, latest_ms: int, start: int, count: int
) -> Call[list[tuple[str, int]]]:
    """Read up to `count` jobs, newest first, each with its ms of submission: from `start` on of those after `after_ms`
    up to `latest_ms`.
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
    """Read up to which ms of submission a tag's index may lack jobs; 0 if it lacks none."""
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
