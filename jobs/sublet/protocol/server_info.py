"""Plain reads, without I/O, of what a server says of itself: its clock, its memory, its settings."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sublet.protocol.scripts import Call


class Memory(NamedTuple):
    """A server's memory: its `maxmemory-policy`, empty where it does not say; bytes in use; and `maxmemory`, 0 for no limit.

    Bytes are those that the server itself holds against its limit: not what waits for its replicas and its file.
    """

    policy: str
    used: int
    most: int


def clock() -> Call[datetime]:
    """What Redis's clock says."""
    return Call((("TIME",),), lambda reply: datetime.fromtimestamp(int(reply[0]) + int(reply[1]) / 1e6, UTC))


def known(shas: Sequence[str]) -> Call[list[bool]]:
    """Which of these scripts the server has loaded."""
    return Call((("SCRIPT", "EXISTS", *shas),), lambda reply: [bool(word) for word in reply])


def config(name: str) -> Call[str]:
    """One of the server's settings; empty where it has none of this name."""
    return Call((("CONFIG", "GET", name),), lambda reply: reply[1].decode() if reply else "")


def settings(base: str, pattern: str) -> Call[dict[str, str]]:
    """The settings whose names fit, of the server of this partition: it reads of that, too, and so goes to its node."""

    def read(reply: Any) -> dict[str, str]:
        words = [word.decode() for word in reply[1]]
        return dict(zip(words[::2], words[1::2], strict=True))

    return Call((("HGET", base, "layout"), ("CONFIG", "GET", pattern)), read)


def has_command(base: str, name: str) -> Call[bool]:
    """Does the server of this partition know a command? In one word, or redis-py would take the reply for a list of all."""
    return Call((("HGET", base, "layout"), ("COMMAND INFO", name)), lambda reply: reply[1][0] is not None)


def server() -> Call[dict[str, Any]]:
    """What the server says of itself."""
    return Call((("INFO",),), info)


def memory(base: str) -> Call[Memory]:
    """How full the server of this partition is, and what it does then. It reads of the partition, too: so it goes to its node."""

    def read(reply: Any) -> Memory:
        said = info(reply[1])
        used, apart, most = (
            _whole(said.get(name)) for name in ("used_memory", "mem_not_counted_for_evict", "maxmemory")
        )
        return Memory(str(said.get("maxmemory_policy", "")), max(0, used - apart), most)

    return Call((("HGET", base, "layout"), ("INFO", "memory")), read)


def _whole(said: Any) -> int:
    """A number that a server said; 0 where it said none, or something else."""
    try:
        return int(said or 0)
    except ValueError:
        return 0


def info(reply: Any) -> dict[str, Any]:
    """What INFO answered, as a dictionary, whether or not the client has read it already."""
    if isinstance(reply, dict):
        return reply
    lines = (line.partition(":") for line in reply.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
