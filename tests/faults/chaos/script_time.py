"""How long our scripts held a server, by its own slow log."""

from contextlib import suppress
from typing import Any, NamedTuple

import redis

from sublet.protocol.scripts import NAMES, script

KEPT = 10_000
"""Entries that are looked at."""
NEW = "a script that it did not know yet"


class ScriptTime(NamedTuple):
    """The longest of a server's holds: which script's it was, by name. No seconds, and no name, where none took a millisecond."""

    seconds: float = 0.0
    script: str = ""


def longest_script(client: Any) -> ScriptTime:
    """The longest that one of our scripts held this server for as long as it notes; none if it does not say."""
    names = {script(name).sha.encode(): name for name in NAMES}
    begins = {script(name).text.encode()[:64] for name in NAMES}
    longest = ScriptTime()
    with suppress(redis.RedisError, OSError):  # a sentinel has no such log; a server may be on its way out
        for entry in client.slowlog_get(KEPT):
            verb, _, rest = entry["command"].partition(b" ")
            name = names.get(rest[:40], NEW if rest[:64] in begins else "")
            if name and verb.upper() in (b"EVALSHA", b"EVAL"):
                longest = max(longest, ScriptTime(entry["duration"] / 1e6, name))
    return longest
