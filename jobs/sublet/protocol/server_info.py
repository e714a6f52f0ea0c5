"""Reads of the Redis server itself, without I/O: its clock, memory and configuration."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sublet.protocol.scripts import Call


class Memory(NamedTuple):
    """A server's memory: `maxmemory-policy` (empty if unknown), bytes in use, and `maxmemory` (0 for no limit).

    The bytes are those that the server counts against its limit: without the buffers of replicas and of the append-only file.
    """

    policy: str
    used: int
    most: int


def clock() -> Call[datetime]:
    """The time of the Redis server."""
    return Call((("TIME",),), lambda reply: datetime.fromtimestamp(int(reply[0]) + int(reply[1]) / 1e6, UTC))


def known(shas: Sequence[str]) -> Call[list[bool]]:
    """Whether the server has loaded each of these scripts."""
    return Call((("SCRIPT", "EXISTS", *shas),), lambda reply: [bool(word) for word in reply])


def config(name: str) -> Call[str]:
    """A setting of the server; empty if there is none of this name."""
    return Call((("CONFIG", "GET", name),), lambda reply: reply[1].decode() if reply else "")


def settings(base: str, pattern: str) -> Call[dict[str, str]]:
    """The settings whose names match, of the partition's server. It also reads a key of the partition, so a cluster client routes it."""

    def read(reply: Any) -> dict[str, str]:
        words = [word.decode() for word in reply[1]]
        return dict(zip(words[::2], words[1::2], strict=True))

    return Call((("HGET", base, "layout"), ("CONFIG", "GET", pattern)), read)


def has_command(base: str, name: str) -> Call[bool]:
    """Whether the partition's server has a command. "COMMAND INFO" is one word: redis-py would parse the reply of two."""
    return Call((("HGET", base, "layout"), ("COMMAND INFO", name)), lambda reply: reply[1][0] is not None)


def server() -> Call[dict[str, Any]]:
    """The server's INFO."""
    return Call((("INFO",),), info)


def memory(base: str) -> Call[Memory]:
    """The memory of the partition's server. It also reads a key of the partition, so a cluster client routes it."""

    def read(reply: Any) -> Memory:
        fields = info(reply[1])
        used, apart, most = (
            _whole(fields.get(name)) for name in ("used_memory", "mem_not_counted_for_evict", "maxmemory")
        )
        return Memory(str(fields.get("maxmemory_policy", "")), max(0, used - apart), most)

    return Call((("HGET", base, "layout"), ("INFO", "memory")), read)


def _whole(value: Any) -> int:
    """A whole number of INFO; 0 if it is missing or malformed."""
    try:
        return int(value or 0)
    except ValueError:
        return 0


def info(reply: Any) -> dict[str, Any]:
    """The reply of INFO as a dictionary, also if the client has parsed it already."""
    if isinstance(reply, dict):
        return reply
    lines = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
