"""Groups of real servers on loopback: a cluster, and a primary with replicas and sentinels.

Each server can be killed, frozen and restarted. They end with this process.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from sublet.connection.topology import slot_of
from sublet.errors import Unavailable
from sublet.tasks.programs.bound_process import spawn_bound
from tests.faults.chaos.servers import SECONDS, Server, free_port

SLOTS = 16384
TIMEOUT_MS = 1000
"""The timeout of a silent server. In production it is 15 s (cluster) or 30 s (sentinels)."""
FAST_PERIODS = ("INFO-PERIOD", 500, "PING-PERIOD", 200, "ASK-PERIOD", 200, "PUBLISH-PERIOD", 500)
"""Periods of sentinels in ms, 20 times shorter than the defaults, with which they need 10 s to notice a
change."""
FORMING = 30.0
"""Seconds for servers to agree."""
_POLL = 0.02


def until(ready: Callable[[], bool], what: str, seconds: float = FORMING) -> None:
    """Wait for a condition. Raises Unavailable at the timeout."""
    end = time.monotonic() + seconds
    while True:
        with suppress(redis.RedisError, OSError):
            if ready():
                return
        if time.monotonic() > end:
            raise Unavailable(f"after {seconds:g} s it is still not true: {what}")
        time.sleep(_POLL)


class Servers:
    """A group of servers. A context manager that stops them."""

    nodes: list[Server]

    def __init__(self) -> None:
        self._frozen: set[int] = set()

    @property
    def living(self) -> list[Server]:
        """The servers that are neither killed nor frozen."""
        return [node for node in self.nodes if node.process.poll() is None and node.port not in self._frozen]

    def kill(self, node: Server) -> None:
        """Send SIGKILL to a server."""
        node.kill()

    def freeze(self, node: Server) -> None:
        """Freeze a server. Its connections stay open."""
        node.freeze()
        self._frozen.add(node.port)

    def thaw(self, node: Server) -> None:
        """Resume a server."""
        node.thaw()
        self._frozen.discard(node.port)

    def revive(self, node: Server) -> None:
        """Start a killed server again."""
        node.start()

    def at(self, port: int) -> Server:
        """The server at a port."""
        return next(node for node in self.nodes if node.port == port)

    def close(self) -> None:
        """Stop all servers."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cluster(Servers):
    """A cluster of primaries with replicas. Made by `start`."""

    def __init__(self, nodes: Sequence[Server], primaries: int) -> None:
        super().__init__()
        self.nodes, self._primaries = list(nodes), primaries

    @classmethod
    def start(
        cls, folder: Path, primaries: int = 3, replicas: int = 1, *, binary: str | None = None, **options: Any
    ) -> "Cluster":
        """Start the servers, and wait until all slots are served and all replicas synchronized. Raises
        Unavailable.
        """
        nodes: list[Server] = []
        cluster = cls(nodes, primaries)
        rules: dict[str, Any] = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": TIMEOUT_MS,
            "cluster_replica_validity_factor": 0,
        }
        rules |= {"repl_diskless_sync_delay": 0, "repl_ping_replica_period": 1} | options
        try:
            for number in range(primaries * (1 + replicas)):
                where = folder / f"node-{number}"
                cluster.nodes.append(Server(where, binary=binary, cluster_port=free_port(), **rules))
            cluster._form()
        except BaseException:
            cluster.close()
            raise
        return cluster

    @property
    def url(self) -> str:
        """The cluster's URL."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def _form(self) -> None:
        first, primaries = self.nodes[0], self.nodes[: self._primaries]
        for number, node in enumerate(self.nodes):
            node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(primaries):
            begin, end = (SLOTS * i // self._primaries for i in (number, number + 1))
            node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
        for node in self.nodes[1:]:
            bus = int(self._query(node, "CONFIG", "GET", "cluster-port")[1])
            first.client.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        until(
            lambda: all(len(self._table(node)) == len(self.nodes) for node in self.nodes),
            "all nodes know each other",
        )
        for number, node in enumerate(self.nodes[self._primaries :]):
            node.client.execute_command("CLUSTER", "REPLICATE", self._id(primaries[number % self._primaries]))
        self.settle()

    def settle(self) -> None:
        """Wait until all slots are served and all live replicas are synchronized."""
        until(lambda: all(self._is_settled(node) for node in self.living), "the cluster is whole")

    def _is_settled(self, node: Server) -> bool:
        role = node.client.execute_command("ROLE")
        state = self._query(node, "CLUSTER", "INFO")
        in_step = role[0] == b"master" or role[3] == b"connected"
        return (
            b"cluster_state:ok" in state
            and in_step
            and not any("fail?" in line for line in self._table(node))
        )

    @staticmethod
    def _query(node: Server, *words: Any) -> Any:
        """A server's raw reply."""
        connection = node.client.connection_pool.get_connection()
        try:
            connection.send_command(*words)
            return connection.read_response()
        finally:
            node.client.connection_pool.release(connection)

    def _table(self, node: Server) -> list[str]:
        return [str(line) for line in self._query(node, "CLUSTER", "NODES").decode().splitlines()]

    def _id(self, node: Server) -> str:
        found: str = self._query(node, "CLUSTER", "MYID").decode()
        return found

    def primary_of(self, tag: str) -> Server:
        """The primary of a partition, according to a live server."""
        slot = slot_of(tag)
        for first, last, (_, port, *_rest), *_replicas in self._query(self.living[0], "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return self.at(port)
        raise Unavailable(f"no server serves slot {slot}")

    @property
    def primaries(self) -> list[Server]:
        """The live primaries."""
        found = {
            port for _, _, (_, port, *_rest), *_replicas in self._query(self.living[0], "CLUSTER", "SLOTS")
        }
        return [node for node in self.living if node.port in found]

    def move_slot(self, slot: int, to: Server) -> None:
        """Move a slot to another primary (Valkey 9), and wait until all live servers agree."""
        source = next(node for node in self.primaries if self._has(node, slot))
        source.client.execute_command(
            "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self._id(to)
        )
        until(
            lambda: all(self._owner(node, slot) == to.port for node in self.living),
            f"slot {slot} is at {to.port}",
        )

    def _has(self, node: Server, slot: int) -> bool:
        return self._owner(node, slot) == node.port

    def _owner(self, node: Server, slot: int) -> int:
        for first, last, (_, port, *_rest), *_replicas in self._query(node, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return int(port)
        return 0


class Sentinels(Servers):
    """A primary with replicas, and sentinels that fail over. Made by `start`."""

    service = "main"

    def __init__(self, nodes: Sequence[Server], watchers: Sequence[Server]) -> None:
        super().__init__()
        self.nodes, self.watchers = list(nodes), list(watchers)

    @classmethod
    def start(
        cls, folder: Path, replicas: int = 2, watchers: int = 3, *, binary: str | None = None, **options: Any
    ) -> "Sentinels":
        """Start the servers, and wait until replicas are synchronized and the sentinels know all servers.
        Raises Unavailable.
        """
        group = cls([], [])
        rules: dict[str, Any] = {"repl_diskless_sync_delay": 0, "repl_ping_replica_period": 1} | options
        try:
            for number in range(1 + replicas):
                more = {"replicaof": f"127.0.0.1 {group.nodes[0].port}"} if number else {}
                group.nodes.append(_node(folder / f"node-{number}", binary, rules | more))
            for number in range(watchers):
                group.watchers.append(Watcher(folder / f"sentinel-{number}", group.nodes[0].port, binary))
            until(
                lambda: all(group._knows(watcher) for watcher in group.watchers),
                "the sentinels know each other",
            )
            group.settle()
        except BaseException:
            group.close()
            raise
        return group

    @property
    def url(self) -> str:
        """The group's URL."""
        return (
            f"redis+sentinel://{','.join(f'127.0.0.1:{each.port}' for each in self.watchers)}/{self.service}"
        )

    def _status(self, watcher: Server) -> dict[str, Any]:
        status: dict[str, Any] = watcher.client.execute_command("SENTINEL MASTER", self.service)
        return status

    def _knows(self, watcher: Server) -> bool:
        status = self._status(watcher)
        return (status["num-other-sentinels"], status["num-slaves"]) == (
            len(self.watchers) - 1,
            len(self.nodes) - 1,
        )

    def primary_of(self, tag: str = "") -> Server:
        """The primary, according to the sentinels."""
        watcher = next(each for each in self.watchers if each.process.poll() is None)
        return self.at(
            int(watcher.client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.service)[1])
        )

    def hand_over(self) -> None:
        """Fail over without a loss (Valkey 9), and wait for the new primary."""
        self.settle()
        old, words = self.primary_of(), ("SENTINEL FAILOVER", self.service, "COORDINATED")
        until(
            lambda: bool(self.watchers[0].client.execute_command(*words)),
            "a sentinel sees a replica that is fit",
        )
        until(lambda: self.primary_of() is not old, "there is another primary")

    def settle(self) -> None:
        """Wait until all live servers are synchronized replicas of the primary."""
        until(self._is_settled, "the replicas are in step")

    def _is_settled(self) -> bool:
        if any("failover_in_progress" in self._status(watcher)["flags"] for watcher in self.watchers):
            return False
        primary = self.primary_of()
        role, offset, _ = primary.client.execute_command("ROLE")
        others = [node.client.execute_command("ROLE") for node in self.living if node is not primary]
        return role == b"master" and all(
            other[2:] == [primary.port, b"connected", offset] for other in others
        )

    def close(self) -> None:
        """Stop all, the sentinels first."""
        for each in (*self.watchers, *self.nodes):
            each.close()


def _node(folder: Path, binary: str | None, options: dict[str, Any]) -> Server:
    replicaof = options.pop("replicaof", None)
    node = Server(folder, binary=binary, **options)
    if replicaof:
        node.client.execute_command("REPLICAOF", *replicaof.split(" "))
    return node


class Watcher(Server):
    """A sentinel. It keeps its state in its configuration file."""

    def __init__(self, folder: Path, primary: int, binary: str | None = None) -> None:
        self._primary = primary
        super().__init__(folder, binary=binary)

    def start(self) -> None:
        """Start it and wait until it answers. Raises Unavailable."""
        file, name = self.folder / "sentinel.conf", Sentinels.service
        if not file.exists():
            file.write_text(
                f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\nsentinel monitor {name} 127.0.0.1 {self._primary} 2\n"
                f"sentinel down-after-milliseconds {name} {TIMEOUT_MS}\nsentinel failover-timeout {name} 5000\n"
            )
        with open(self.folder / "server.log", "ab") as log:
            self.process = spawn_bound([self.binary, str(file), "--sentinel"], stdout=log, stderr=log)
        until(self.answers, f"the sentinel at {self.port} answers", SECONDS)
        self.client.execute_command("SENTINEL DEBUG", *FAST_PERIODS)
