"""Trouble with a primary: it dies with its last writes, which its replica has never seen."""

from pathlib import Path
from typing import Any

from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.servers import Server
from tests.faults.chaos.stage import Stage
from tests.faults.chaos.wires import Wire

BACK = 6.0
"""Seconds in which work goes on after a replica has become the primary."""


class Pair:
    """A primary, a replica, the wire between them, and the wire by which everybody comes to whichever is the primary."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self.primary = stage, stage.server_
        self.stream = stage.closing(Wire(self.primary.port))
        folder: Path = stage.folder / "replica"
        self.replica = stage.closing(Server(folder, binary=self.primary.binary, repl_diskless_sync_delay=0))
        self.replica.client.replicaof("127.0.0.1", self.stream.port)
        self.front = stage.closing(Wire(self.primary.port))
        stage.crew.env |= {"SUBLET_REDIS_URL": self.front.url}
        stage.until(
            lambda: self._replication().get("master_link_status") == "up", "the replica follows its primary"
        )

    def _replication(self) -> dict[str, Any]:
        found: dict[str, Any] = self.replica.client.info("replication")
        return found

    def fail_over(self) -> None:
        """Kill the primary and have the replica take its place."""
        self.primary.kill()
        self.replica.client.replicaof("NO", "ONE")
        self.front.lead_to(self.replica.port)
        self._stage.look_at(self.replica.url)

    def come_back(self) -> None:
        """Have the dead primary come back, as a replica of the other."""
        self.primary.start()
        self.primary.client.replicaof("127.0.0.1", self.replica.port)


def _lose_the_last_writes(stage: Stage) -> None:
    pair = Pair(stage)
    stage.work(rate=60)
    stage.wait(stage.seconds / 3)
    with stage.trouble("failover"):
        pair.stream.hang()
        stage.wait(max(1.0, stage.seconds / 3))
        pair.fail_over()
        pair.come_back()
    stage.wait(stage.seconds / 3)


@scenario("primary-lost", recovery=BACK, quick=6, whole=20, promises=(), shows=("lost",), server={"repl-diskless-sync-delay": 0},
          loses="what the replica had not seen; durability=replicated keeps it")  # fmt: skip
def primary_lost(stage: Stage) -> None:
    """The primary dies after its replica has heard nothing for a while, and the replica takes its place."""
    _lose_the_last_writes(stage)


@scenario("primary-lost-replicated", recovery=BACK, quick=6, whole=20, promises=("lost",), server={"repl-diskless-sync-delay": 0},
          repeats="one whose end the replica had not seen is done again")  # fmt: skip
def primary_lost_replicated(stage: Stage) -> None:
    """The same, with durability=replicated: what was acknowledged is there."""
    stage.crew.env |= {"SUBLET_DURABILITY": "replicated"}
    _lose_the_last_writes(stage)
    stage.expect(stage.ledger.of("unknown"), "no submit was left unconfirmed while the replica heard nothing")
