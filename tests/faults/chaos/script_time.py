"""The run time of Sublet scripts, from a server's slow log."""

from contextlib import suppress
from typing import Any, NamedTuple

import redis

from sublet.protocol.scripts import NAMES, script

KEPT = 10_000
"""Entries to read."""
NEW = "a script that it did not know yet"
COMPILED = 0.010
"""Seconds in which a server may compile and run a script that it did not know: `claim` takes 3 ms to compile."""


class ScriptTime(NamedTuple):
    """The longest run of a script, with its name. Empty if all took less than 1 ms."""

    seconds: float = 0.0
    script: str = ""


def longest_script(client: Any) -> ScriptTime:
    """The longest run of a Sublet script in the server's slow log; one that was compiled counts above 10 ms."""
    names = {script(name).sha.encode(): name for name in NAMES}
    begins = {script(name).text.encode()[:64] for name in NAMES}
    longest = ScriptTime()
    with suppress(redis.RedisError, OSError):  # sentinels have no slow log, and a server may be stopping
        for entry in client.slowlog_get(KEPT):
            verb, _, rest = entry["command"].partition(b" ")
            name = names.get(rest[:40], NEW if rest[:64] in begins else "")
            ran = ScriptTime(entry["duration"] / 1e6, name)
            if name and verb.upper() in (b"EVALSHA", b"EVAL") and (name != NEW or ran.seconds > COMPILED):
                longest = max(longest, ran)
    return longest
