"""The data that `sublet doctor` reads (`Facts`) and its reports (`Finding`)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.operations.consistency.audit import Audit
from sublet.operations.coverage import Gaps
from sublet.operations.pool import Pool

Level = Literal["ok", "warn", "bad", "unknown"]


class Node(NamedTuple):
    """The facts of one server, named as in Facts; `node` is its host:port ("" if alone)."""

    node: str
    skew: float
    info: dict[str, Any]
    config: dict[str, str | None]
    loaded: list[bool] | None


class Facts(NamedTuple):
    """The facts of a namespace and one of its servers. None: not read; 0 in `missing` or an empty
    tuple may mean this.
    """

    settings: Settings
    now: datetime
    skew: float
    """Seconds by which Redis's clock is ahead of this machine's."""
    info: dict[str, Any]
    config: dict[str, str | None]
    layouts: Sequence[str | None] = ()
    partition_counts: tuple[int | None, ...] = ()
    """The partition count in each partition's metadata; 0 if the partition does not exist."""
    loaded: list[bool] | None = None
    last_maintenance: tuple[datetime, str] | None = None
    overdue: tuple[int, float] | None = None
    """How many jobs, leases and occurrences are overdue, and the longest delay in seconds."""
    wrong_type_keys: list[str] | None = None
    workers: list[tuple[str, datetime]] | None = None
    """Names of workers, and their last heartbeats."""
    pools: list[Pool] | None = None
    gaps: Gaps | None = None
    audit: Audit | None = None
    misplaced: tuple[str, ...] = ()
    """Queues that are in another partition than their names determine."""
    deleted_early: int | None = 0
    """How many dead and cancelled jobs were deleted before their retention passed: there were too many."""
    results_deleted_early: int | None = 0
    missing: int = 0
    """How many unfinished jobs were found missing since `doctor --repair` last counted the jobs."""
    denied: bool = False
    """Whether this Redis user may not read some of the facts."""
    starved: tuple[str, ...] = ()
    """Names of workers whose slots, or child processes, are all used by jobs that wait for the results of other
    jobs."""
    node: str = ""
    """host:port of the server, if the namespace has several; else empty."""
    nodes: tuple[Node, ...] = ()
    """All servers of the namespace, if it has several; else empty."""
    url: str = ""
    """The URL to print; empty: none."""
    program: str = "sublet"

    @property
    def suggested_user(self) -> str:
        """Return which Redis users to run the doctor as, in words; empty if this one suffices, or is an
        admin.
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
        """Return `suggested_user` as advice; empty without one."""
        return f"run the doctor as {self.suggested_user}" if self.suggested_user else ""

    @property
    def other_partition_counts(self) -> set[int]:
        """Return stored partition counts other than SUBLET_PARTITIONS."""
        return {number for number in self.partition_counts if number} - {len(self.layouts)}

    @property
    def lost(self) -> list[str]:
        """Return the key prefixes of partitions that have keys, but not the hash that describes them."""
        return [fault.base for fault in self.audit.faults if fault.seen_in == "base"] if self.audit else []


class Finding(NamedTuple):
    """One line of the doctor; `node`: the cluster's nodes that it is about, or empty."""

    level: Level
    subject: str
    found: str
    advice: str = ""
    node: str = ""


def unknown(facts: Facts, subject: str, found: str, advice: str = "") -> Finding:
    """Return a finding for an unread fact. It advises another Redis user if that helps, else `advice`."""
    return Finding("unknown", subject, found, facts.advice or advice)
