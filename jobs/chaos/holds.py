"""How long our scripts held a server, by its own slow log."""

from contextlib import suppress
from typing import Any

import redis

from jobs.scripts import NAMES, script

KEPT = 10_000
"""Entries that are looked at."""


def longest_hold(client: Any) -> float:
    """Seconds for which one of our scripts held this server; 0 if none did for as long as it notes, or it does not say."""
    shas = {script(name).sha.encode() for name in NAMES}
    texts = {script(name).text.encode()[:64] for name in NAMES}
    longest = 0
    with suppress(redis.RedisError, OSError):  # a sentinel has no such log; a server may be on its way out
        for entry in client.slowlog_get(KEPT):
            name, _, rest = entry["command"].partition(b" ")
            if name.upper() in (b"EVALSHA", b"EVAL") and (rest[:40] in shas or rest[:64] in texts):
                longest = max(longest, entry["duration"])
    return longest / 1e6
