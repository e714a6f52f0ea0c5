"""A real primary and its real replica, with the replication stream under a test's control.

The replica connects to a `Stream`, which passes bytes on to the primary's socket. A stopped replica could not
show a loss: the bytes that the primary has written into the kernel's buffers would still arrive.
"""

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from redis.connection import parse_url

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer

SECONDS = 20.0
"""How long a test waits for a replica, in seconds."""
QUICK = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}


class Stream:
    """Passes bytes on, both ways, until it is `cut`; then it holds them, until it is healed or closed."""

    def __init__(self, path: str) -> None:
        self._path, self._flowing, self._over = path, threading.Event(), threading.Event()
        self._flowing.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ends: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, name="stream", daemon=True).start()

    def cut(self) -> None:
        """Hold the bytes in flight; neither side notices."""
        self._flowing.clear()

    def heal(self) -> None:
        """Deliver the held bytes, and pass on again."""
        self._flowing.set()

    def close(self) -> None:
        """Close all connections; held bytes are lost."""
        self._over.set()
        self._flowing.set()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while not self._over.is_set():
                replica, _ = self._listening.accept()
                primary = socket.socket(socket.AF_UNIX)
                replica.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._ends += [replica, primary]
                primary.connect(self._path)
                for source, sink in ((replica, primary), (primary, replica)):
                    threading.Thread(
                        target=self._pass, args=(source, sink), name="stream", daemon=True
                    ).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._flowing.wait()
                if self._over.is_set():
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class Pair:
    """A primary and a replica. `cut` and `heal` the stream; `lose_primary` kills it, and promotes the replica."""

    def __init__(self, primary: EmbeddedServer, replica: EmbeddedServer) -> None:
        self._primary, self.settings = primary, Settings(redis_url=primary.url, timeout=1.0)
        self.primary, self.replica = _client(primary), _client(replica)
        self.stream = Stream(parse_url(primary.url)["path"])  # type: ignore[no-untyped-call]  # redis-py has no types there
        self.cut, self.heal = self.stream.cut, self.stream.heal
        for client in (self.primary, self.replica):
            for name, value in QUICK.items():
                client.config_set(name, value)
        self.replica.execute_command("REPLICAOF", "127.0.0.1", self.stream.port)
        until = time.monotonic() + SECONDS
        while not self.in_step(100):
            assert time.monotonic() < until, "the replica does not start"

    def in_step(self, ms: int) -> bool:
        """Whether the replica has all of the primary's data within so many ms."""
        self.primary.set("step", "")
        counted: int = self.primary.execute_command("WAIT", 1, ms)  # waits on the server
        return counted == 1 and self.replica.info("replication")["master_link_status"] == "up"

    def waits(self) -> int:
        """How often WAIT was called on the primary."""
        found = self.primary.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("wait", "waitaof"))

    def lose_primary(self) -> None:
        """Kill the primary, with all bytes in flight to the replica, and promote the replica."""
        self._primary.stop(at_once=True)
        self.stream.close()
        self.replica.execute_command("REPLICAOF", "NO", "ONE")

    def close(self) -> None:
        """Close the connections; the servers are ended by the code that started them."""
        self.stream.close()
        self.primary.close()
        self.replica.close()


def _client(server: EmbeddedServer) -> Any:
    return redis.Redis.from_url(server.url, protocol=2, decode_responses=True)


@contextlib.contextmanager
def pair(folder: Path, name: str, persistent: bool = False) -> Iterator[Pair]:
    """Start both, of the kind `valkey` or `redis`."""
    binary = shutil.which("redis-server") if name == "redis" else None
    with contextlib.ExitStack() as ends:
        servers = [
            ends.enter_context(EmbeddedServer.start(folder / one, binary=binary, persistent=persistent))
            for one in ("primary", "replica")
        ]
        for server in servers:
            ends.callback(server.stop, at_once=True)
        both = Pair(*servers)
        ends.callback(both.close)
        yield both
