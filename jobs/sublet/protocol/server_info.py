"""Calls that read the state of the Redis server itself.

Except in `foreign`, `base` only makes a cluster client choose the server.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sublet.protocol import keys
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call


class Memory(NamedTuple):
    """A server's `maxmemory-policy` (empty if unknown), bytes in use that count for `maxmemory`, and `maxmemory` in
    bytes (0: no limit).
    """

    policy: str
    used: int
    most: int


def clock() -> Call[datetime]:
    """Read the Redis server's time."""
    return Call((("TIME",),), lambda reply: datetime.fromtimestamp(int(reply[0]) + int(reply[1]) / 1e6, UTC))


def known(shas: Sequence[str]) -> Call[list[bool]]:
    """Read for each of these scripts (SHA-1) whether the server has it."""
    return Call((("SCRIPT", "EXISTS", *shas),), lambda reply: [bool(word) for word in reply])


def config(name: str) -> Call[str]:
    """Read a setting of the server; empty for an unknown one."""
    return Call((("CONFIG", "GET", name),), lambda reply: reply[1].decode() if reply else "")


def settings(base: str, pattern: str) -> Call[dict[str, str]]:
    """Read the server's settings whose names match a pattern."""

    def read(reply: Any) -> dict[str, str]:
        words = [word.decode() for word in reply[1]]
        return dict(zip(words[::2], words[1::2], strict=True))

    return Call((("HGET", base, "layout"), ("CONFIG", "GET", pattern)), read)


def configs(base: str, names: Sequence[str]) -> Call[dict[str, str]]:
    """Read these settings of the server, without unknown ones."""

    def read(reply: Any) -> dict[str, str]:
        return {one[0].decode(): one[1].decode() for one in reply[1:] if one}

    return Call((("HGET", base, "layout"), *(("CONFIG", "GET", name) for name in names)), read)


def state(base: str) -> Call[tuple[datetime, dict[str, Any]]]:
    """Read the server's time, and its INFO as a dict."""

    def read(reply: Any) -> tuple[datetime, dict[str, Any]]:
        seconds, microseconds = reply[1]
        return datetime.fromtimestamp(int(seconds) + int(microseconds) / 1e6, UTC), info(reply[2])

    return Call((("HGET", base, "layout"), ("TIME",), ("INFO",)), read)


def has_command(base: str, name: str) -> Call[bool]:
    """Read whether the server has a command."""
    return Call((("HGET", base, "layout"), ("COMMAND INFO", name)), lambda reply: reply[1][0] is not None)


def server() -> Call[dict[str, Any]]:
    """Read the server's INFO as a dict."""
    return Call((("INFO",),), info)


def memory(base: str) -> Call[Memory]:
    """Read the server's eviction policy, memory in use and limit."""

    def read(reply: Any) -> Memory:
        fields = info(reply[1])
        used, apart, most = (
            _whole(fields.get(name)) for name in ("used_memory", "mem_not_counted_for_evict", "maxmemory")
        )
        return Memory(str(fields.get("maxmemory_policy", "")), max(0, used - apart), most)

    return Call((("HGET", base, "layout"), ("INFO", "memory")), read)


def _whole(value: Any) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return 0


def info(reply: Any) -> dict[str, Any]:
    """Return the reply of INFO as a dict."""
    if isinstance(reply, dict):
        return reply
    lines = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def foreign(base: str, names: Sequence[str]) -> Call[list[str]]:
    """Return the keys of a wrong type, which another program wrote, among the main ones of a partition and
    these queues.
    """
    wanted = {base: "hash", keys.queues(base): "hash", keys.backlog(base): "hash", keys.alarm(base): "string"}
    wanted |= {
        keys.counts(base): "hash",
        keys.workers(base): "zset",
        keys.events(base): "stream",
        keys.audit(base): "stream",
    }
    wanted |= {keys.schedules(base): "zset", keys.tags(base): "zset", keys.pools(base): "hash"}
    wanted |= {keys.minutes(base): "string", keys.hours(base): "string"}
    wanted |= {keys.structure(base, name): "zset" for name in keys.STRUCTURES}
    for name in names:
        wanted |= {
            keys.wake(base, name): "list",
            keys.flow(base, name): "hash",
            keys.places(base, name): "hash",
        }
        sets = (
            *keys.queued(base, name),
            keys.turns(base, name),
            keys.full(base, name),
            keys.tokens(base, name),
        )
        wanted |= dict.fromkeys(sets, "zset")

    def read(reply: Sequence[Any]) -> list[str]:
        there = zip(wanted.items(), reply, strict=True)
        return [key for (key, kind), found in there if found.decode() not in (kind, "none")]

    return together([("TYPE", key) for key in wanted], read)
