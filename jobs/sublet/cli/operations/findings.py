"""What the doctor knows of a server, and what it says of it."""

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.operations.pool import Pool
from sublet.operations.repair import Audit


class Node(NamedTuple):
    """What one server said of itself: its address, and the fields of the same names below."""

    node: str
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    loaded: list[bool] | None


class Facts(NamedTuple):
    """What was said of a namespace, and by one of its servers of itself; None for what was not."""

    settings: Settings
    now: datetime
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    layouts: list[str | None]
    numbers: tuple[int | None, ...]
    """How many partitions the namespace has, as each of these says; 0 where that is not there."""
    loaded: list[bool] | None
    upkeep: tuple[datetime, str] | None
    overdue: tuple[int, float] | None
    """How much is overdue, and for how many seconds at most."""
    foreign: list[str] | None
    """Keys of the namespace that are of a wrong type."""
    workers: list[tuple[str, datetime]] | None
    """The workers on the register, and when each was last heard of."""
    pools: list[Pool] | None = None
    """The pools, with their sums."""
    audit: Audit | None = None
    """Whether what is stored agrees with itself, as far as was looked."""
    misplaced: tuple[str, ...] = ()
    """Queues that are in another partition than their names say."""
    forgotten: int | None = 0
    """Dead and cancelled jobs that went before their time, for there were too many."""
    denied: bool = False
    """Something was not said because this user may not hear it."""
    node: str = ""
    """host:port of the server, where there are several."""
    nodes: tuple[Node, ...] = ()
    """All servers that the namespace is on, where there are several."""

    @property
    def whom(self) -> str:
        """As whom to look at what this user may not see; empty where all is seen, or for the one who may see most."""
        user, name = urlsplit(self.settings.redis_url).username or "", self.settings.namespace
        if not self.denied or user.endswith(("-admin", "+admin")):
            return ""
        return (
            f"{name}-admin"
            if user.endswith(("-read", "+read"))
            else f"{name}-read, or as {name}-admin for all"
        )

    @property
    def advice(self) -> str:
        """What to do about what this user may not see; empty where that is not why something is unknown."""
        return f"look as {self.whom}" if self.whom else ""

    @property
    def others(self) -> set[int]:
        """Numbers of partitions that the namespace says it has, and we were not told. Then most of it is not looked at."""
        return {number for number in self.numbers if number} - {len(self.layouts)}

    @property
    def lost(self) -> list[str]:
        """The bases of partitions of which only other keys are there."""
        return [fault.base for fault in self.audit.faults if fault.seen_in == "base"] if self.audit else []


class Finding(NamedTuple):
    """One line: `ok`, `warn`, `bad` or `unknown`, what was looked at, what was seen, what to do; of several nodes which."""

    level: str
    what: str
    seen: str
    do: str = ""
    node: str = ""


def unknown(facts: Facts, what: str, seen: str, do: str = "") -> Finding:
    """What was not said, and what to do: where this user may not hear it, that is to ask as one who may."""
    return Finding("unknown", what, seen, facts.advice or do)
