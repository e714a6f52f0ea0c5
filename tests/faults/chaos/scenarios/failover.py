"""A failover that loses the primary's last writes."""

from pathlib import Path
from typing import Any

from tests.faults.chaos.harness import Harness
from tests.faults.chaos.link import Link
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.servers import Server

BACK = 6.0
"""Seconds until work continues after the failover."""


class Pair:
    """A primary and a replica, with a link between them and a link from clients to the current primary."""

    def __init__(self, harness: Harness) -> None:
        self._harness, self.primary = harness, harness.server_
        self.stream = harness.closing(Link(self.primary.port))
        folder: Path = harness.folder / "replica"
        self.replica = harness.closing(Server(folder, binary=self.primary.binary, repl_diskless_sync_delay=0))
        self.replica.client.replicaof("127.0.0.1", self.stream.port)
        self.front = harness.closing(Link(self.primary.port))
        harness.processes.env |= {"SUBLET_REDIS_URL": self.front.url}
        harness.until(
            lambda: self._replication().get("master_link_status") == "up", "the replica follows its primary"
        )

    def _replication(self) -> dict[str, Any]:
        found: dict[str, Any] = self.replica.client.info("replication")
        return found

    def fail_over(self) -> None:
        """Kill the primary and promote the replica."""
        self.primary.kill()
        self.replica.client.replicaof("NO", "ONE")
        self.front.retarget(self.replica.port)
        self._harness.use_server(self.replica.url)

    def come_back(self) -> None:
        """Restart the old primary as a replica."""
        self.primary.start()
        self.primary.client.replicaof("127.0.0.1", self.replica.port)


def _lose_the_last_writes(harness: Harness) -> None:
    pair = Pair(harness)
    harness.work(rate=60)
    harness.wait(harness.seconds / 3)
    with harness.fault("failover"):
        pair.stream.hang()
        harness.wait(max(1.0, harness.seconds / 3))
        pair.fail_over()
        pair.come_back()
    harness.wait(harness.seconds / 3)


@scenario("primary-lost", recovery=BACK, quick=6, whole=20, promises=(), shows=("lost",), server={"repl-diskless-sync-delay": 0},
          loses="writes that were not replicated; durability=replicated prevents it")  # fmt: skip
def primary_lost(harness: Harness) -> None:
    """The primary dies with writes that its replica has not received, and the replica is promoted."""
    _lose_the_last_writes(harness)


@scenario("primary-lost-replicated", recovery=BACK, quick=6, whole=20, promises=("lost",), server={"repl-diskless-sync-delay": 0},
          repeats="a job whose end was not replicated runs again")  # fmt: skip
def primary_lost_replicated(harness: Harness) -> None:
    """The same with durability=replicated: no acknowledged job is lost."""
    harness.processes.env |= {"SUBLET_DURABILITY": "replicated"}
    _lose_the_last_writes(harness)
    harness.expect(
        harness.ledger.of("unknown"), "no submit was unconfirmed while the replica received nothing"
    )
