"""Facts that the doctor reads, and findings that it prints."""

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.operations.pool import Pool
from sublet.operations.repair import Audit


class Node(NamedTuple):
    """Facts of one server: its address, and fields with the same names as in Facts."""

    node: str
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    loaded: list[bool] | None


class Facts(NamedTuple):
    """Facts of a namespace and of one of its servers. None stands for a fact that could not be read."""

    settings: Settings
    now: datetime
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    layouts: list[str | None]
    partition_counts: tuple[int | None, ...]
    """The partition counts that the namespace's metadata gives, per partition; 0 if the partition does not exist."""
    loaded: list[bool] | None
    last_maintenance: tuple[datetime, str] | None
    overdue: tuple[int, float] | None
    """The number of overdue items, and the longest delay in seconds."""
    wrong_type_keys: list[str] | None
    """Keys of the namespace with a wrong type."""
    workers: list[tuple[str, datetime]] | None
    """The registered workers with the times of their last heartbeats."""
    pools: list[Pool] | None = None
    """The pools with their computed sizes."""
    audit: Audit | None = None
    """Inconsistencies in the stored data, as far as it was checked."""
    misplaced: tuple[str, ...] = ()
    """Queues that are stored in another partition than their names map to."""
    deleted_early: int | None = 0
    """Dead and cancelled jobs that were deleted before their retention passed, because there were too many."""
    denied: bool = False
    """Some facts are missing because this user may not read them."""
    node: str = ""
    """host:port of the server, if there are several."""
    nodes: tuple[Node, ...] = ()
    """All servers of the namespace, if there are several."""

    @property
    def suggested_user(self) -> str:
        """The user that may read the missing facts; "" if no fact is missing or this user has the most rights."""
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
        """Advice for facts that this user may not read; "" if rights are not the reason."""
        return f"run the doctor as {self.suggested_user}" if self.suggested_user else ""

    @property
    def other_partition_counts(self) -> set[int]:
        """Partition counts in the namespace that differ from ours. If they exist, most of the namespace was not checked."""
        return {number for number in self.partition_counts if number} - {len(self.layouts)}

    @property
    def lost(self) -> list[str]:
        """Partitions whose metadata is gone while other keys exist."""
        return [fault.base for fault in self.audit.faults if fault.seen_in == "base"] if self.audit else []


class Finding(NamedTuple):
    """One line. `level` is `ok`, `warn`, `bad` or `unknown`; `node` is empty for a single server."""

    level: str
    subject: str
    found: str
    advice: str = ""
    node: str = ""


def unknown(facts: Facts, subject: str, found: str, advice: str = "") -> Finding:
    """Return a finding about an unreadable fact. If rights are the reason, the advice is to run as another user."""
    return Finding("unknown", subject, found, facts.advice or advice)
