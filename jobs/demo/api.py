"""The HTTP API of the demo: a `sublet serve` in a process of its own, as anybody would run it."""

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from jobs.demo.cast import Stuck
from jobs.demo.workers import HOME
from jobs.embedded import spawn_bound

FIRST_PORT, PORTS = 8377, 100
"""The port that is tried first, and how many are tried before any free one will do."""
READY_SECONDS = 30.0
"""How long the API may take to be up."""
STOP_SECONDS = 2.0
"""How long it may take to answer who waits before it is killed."""
TRIES = 3
"""Starts, when others take the port in the same moment."""
OURS = ("SUBLET_TOKENS", "SUBLET_TOKENS_FILE", "SUBLET_HOST", "SUBLET_PORT", "PORT")
"""Settings of a person's own servers, which are not meant for this one."""


class ApiProcess:
    """One `sublet serve` for this machine alone. It dies with this process, however that dies. A context manager that ends it."""

    def __init__(self, redis_url: str, log: Path) -> None:
        self.url = ""
        """Where it is, once it is up."""
        self._redis_url, self._log = redis_url, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, where it was before if it was up, and wait for it. Raises Stuck."""
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        for _ in range(TRIES):
            self.url = self._start(port or free_port()) or ""
            if self.url:
                return
            self.close()
            port = 0
        raise Stuck(f"the HTTP API did not start; its log is {self._log}")

    @property
    def exit(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.poll() if self._process else None

    def _start(self, port: int) -> str | None:
        """Start it once on this port: its URL, or None when it ended or said nothing in time."""
        path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
        kept = {name: value for name, value in os.environ.items() if name not in OURS}
        command = [sys.executable, "-P", "-m", "jobs", "serve", "--json", "--port", str(port)]
        environment = {**kept, "PYTHONPATH": path, "SUBLET_REDIS_URL": self._redis_url}
        with open(self._log, "ab") as log:
            self._process = process = spawn_bound(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        stdout = process.stdout
        assert stdout is not None
        threading.Thread(target=lambda: said.put(stdout.readline()), name="api", daemon=True).start()
        with contextlib.suppress(queue.Empty, ValueError, KeyError):
            return str(json.loads(said.get(timeout=READY_SECONDS))["url"])
        return None

    def close(self) -> None:
        """Have it answer who waits, and see it gone."""
        process = self._process
        if process is None:
            return
        try:
            process.terminate()
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()

    def __enter__(self) -> "ApiProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def free_port() -> int:
    """A port on which nobody listens now: this one or the next that is free; 0, which leaves the choice, where all are taken."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    return 0
