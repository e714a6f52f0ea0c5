"""Faults of a cluster, and of a primary with sentinels."""

from functools import partial

from sublet.connection.topology import slot_of
from tests.faults.chaos.harness import Harness
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.servers import Server
from tests.faults.chaos.topologies import TIMEOUT_MS, Cluster, Sentinels, Servers

PARTITIONS = 4
"""Their hash tags are on all three primaries of a cluster."""
BACK = 3 * TIMEOUT_MS / 1000 + 5
"""Seconds until a replica is elected and work continues. A silent node is given up after 1 s."""
AGAIN = "a job whose end was not replicated runs again"
"""The repetition that a failover allows although each submit waits for a replica."""


def _on(harness: Harness, servers: Servers, url: str, partitions: int = 1) -> None:
    harness.closing(servers)
    harness.move_to(url, partitions, servers.nodes)


@scenario("cluster-primary-killed", recovery=BACK, quick=8, whole=40, promises=("lost",), repeats=AGAIN)
def cluster_primary_killed(harness: Harness) -> None:
    """A primary of a cluster of six is killed repeatedly under load, and its replica takes its slots."""
    cluster = Cluster.start(harness.folder / "cluster", binary=harness.server_.binary)
    _on(harness, cluster, cluster.url, PARTITIONS)
    harness.processes.env |= {"SUBLET_DURABILITY": "replicated"}
    harness.work(rate=40)
    for n in harness.rounds(every=8):
        victim = cluster.primary_of(f"{{{harness.settings.namespace}:{n % PARTITIONS}}}")
        with harness.fault("SIGKILL of a primary"):
            cluster.kill(victim)
            harness.wait(1)
            cluster.revive(victim)
            cluster.settle()


@scenario("cluster-slot-moved", recovery=BACK, quick=6, whole=30, valkey=(9, 0))
def cluster_slot_moved(harness: Harness) -> None:
    """Partitions move to another node of a cluster, each with its whole slot, under load."""
    cluster = Cluster.start(harness.folder / "cluster", binary=harness.server_.binary)
    _on(harness, cluster, cluster.url, PARTITIONS)
    harness.work(rate=60)
    for n in harness.rounds(every=1.5):
        tag = f"{{{harness.settings.namespace}:{n % PARTITIONS}}}"
        here = cluster.primary_of(tag)
        with harness.fault("a slot moves"):
            cluster.move_slot(slot_of(tag), next(node for node in cluster.primaries if node is not here))


def _is_replaced(group: Sentinels, victim: Server) -> bool:
    return group.primary_of() is not victim


@scenario("sentinel-failover", recovery=BACK, quick=8, whole=30, promises=("lost",), repeats=AGAIN)
def sentinel_failover(harness: Harness) -> None:
    """The primary is killed under load, and sentinels promote a replica."""
    group = Sentinels.start(harness.folder / "group", binary=harness.server_.binary)
    _on(harness, group, group.url)
    harness.processes.env |= {"SUBLET_DURABILITY": "replicated"}
    harness.work(rate=40)
    for _ in harness.rounds(every=12):
        victim = group.primary_of()
        with harness.fault("SIGKILL of the primary"):
            group.kill(victim)
            harness.until(partial(_is_replaced, group, victim), "another primary is named")
        group.revive(victim)
