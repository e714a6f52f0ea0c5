"""The doctor's facts and findings."""

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.operations.pool import Pool
from sublet.operations.repair import Audit


class Node(NamedTuple):
    """A server's address and facts, named as in Facts."""

    node: str
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    loaded: list[bool] | None


class Facts(NamedTuple):
    """Facts of a namespace and one of its servers; None for one that could not be read."""

    settings: Settings
    now: datetime
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    layouts: list[str | None]
    partition_counts: tuple[int | None, ...]
    """By partition, as its metadata has it; 0 if the partition does not exist."""
    loaded: list[bool] | None
    last_maintenance: tuple[datetime, str] | None
    overdue: tuple[int, float] | None
    """Number and longest delay in seconds."""
    wrong_type_keys: list[str] | None
    workers: list[tuple[str, datetime]] | None
    """Workers and their last heartbeats."""
    pools: list[Pool] | None = None
    """With computed sizes."""
    audit: Audit | None = None
    """As far as the data was checked."""
    misplaced: tuple[str, ...] = ()
    """Queues outside the partition of their names."""
    deleted_early: int | None = 0
    """Dead and cancelled jobs deleted before their retention passed: there were too many."""
    denied: bool = False
    """This user may not read some facts."""
    node: str = ""
    """host:port, if the namespace has several servers."""
    nodes: tuple[Node, ...] = ()
    """All servers, if there are several."""

    @property
    def suggested_user(self) -> str:
        """The user that may read the missing facts; "" without such facts, or if this user has the most
        rights.
        """
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
        """Advice for facts that this user may not read, else ""."""
        return f"run the doctor as {self.suggested_user}" if self.suggested_user else ""

    @property
    def other_partition_counts(self) -> set[int]:
        """Partition counts that differ from ours. With any, most of the namespace was not checked."""
        return {number for number in self.partition_counts if number} - {len(self.layouts)}

    @property
    def lost(self) -> list[str]:
        """Partitions that have keys and lost their metadata."""
        return [fault.base for fault in self.audit.faults if fault.seen_in == "base"] if self.audit else []


class Finding(NamedTuple):
    """One line. `level` is `ok`, `warn`, `bad` or `unknown`; `node` is empty for a single server."""

    level: str
    subject: str
    found: str
    advice: str = ""
    node: str = ""


def unknown(facts: Facts, subject: str, found: str, advice: str = "") -> Finding:
    """Return a finding about an unreadable fact; for lack of rights it names another user."""
    return Finding("unknown", subject, found, facts.advice or advice)
