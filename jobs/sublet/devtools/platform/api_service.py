"""The platform's HTTP API: `sublet serve` in its own process."""

import asyncio
import contextlib
import errno
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sublet.connection.settings import Settings
from sublet.errors import JobsError
from sublet.source_tree import import_folders
from sublet.tasks.programs.bound_process import spawn_bound

FIRST_PORT, PORTS = 8377, 100
READY_SECONDS = 30.0
STOP_SECONDS = 2.0
ANSWER_SECONDS = 1.5
TRIES = 3
OURS = ("SUBLET_TOKENS", "SUBLET_TOKENS_FILE", "SUBLET_OPEN", "SUBLET_HOST", "SUBLET_PORT", "PORT")

OnLine = Callable[[bytes], None]
"""Called from a thread with each line of the API process's stderr, newline included."""


class ApiService:
    """A `sublet serve` process. `port` 0: the first free port from 8377; a restart uses the same one if it is
    free, else another.
    """

    name = "api"

    def __init__(self, env: Mapping[str, str], on_line: OnLine, port: int = 0) -> None:
        self.url = ""
        self._env, self._on_line, self._port = env, on_line, port
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def start(self) -> str:
        """Start the API; return its URL when it answers. Raises JobsError."""
        port = int(self.url.rpartition(":")[2]) if self.url else self._port
        if port and not self.url and not is_free(port):
            raise JobsError(
                f"port {port} is in use: stop the program that listens there, or omit --port to take a free port"
            )
        for _ in range(TRIES):
            url = self._start(port or free_port())
            if url:
                self.url = url
                return url
            self.stop()
            if self._over:
                break
            port = self._port
        where = f"on port {self._port}" if self._port else "on any port"
        raise JobsError(
            f"the HTTP API did not start {where} in time: see its output above (of the demo: .sublet/demo/api.log)"
        )

    @property
    def exit(self) -> int | None:
        """The API's exit code; None while it runs; 0 before the start."""
        return self._process.poll() if self._process else 0

    @property
    def pid(self) -> int:
        """The API's process id; 0 before the start."""
        return self._process.pid if self._process else 0

    def _start(self, port: int) -> str | None:
        if self._over:
            return None
        address = ["--host", "127.0.0.1", "--port", str(port)]
        command = [sys.executable, "-P", "-m", "sublet", "serve", "--json", *address]
        pipe = subprocess.PIPE
        self._process = process = spawn_bound(command, stdout=pipe, stderr=pipe, env=environment(self._env))
        first_line: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        for target in (
            lambda: _read_stdout(process, first_line),
            lambda: _read_stderr(process, self._on_line),
        ):
            threading.Thread(target=target, name="api", daemon=True).start()
        with contextlib.suppress(queue.Empty, ValueError, KeyError):
            return str(json.loads(first_line.get(timeout=READY_SECONDS))["url"])
        return None

    async def is_healthy(self) -> bool:
        """Whether `GET /healthz` answers 200 within 1.5 s."""
        parts = urlsplit(self.url)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                try:
                    writer.write(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                    return (await reader.readline()).split()[1:2] == [b"200"]
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    def stop(self, at_once: bool = False) -> None:
        """Stop the API: `at_once`, or after open requests, in 2 s at most. Wait for the end."""
        process = self._process
        if process is None:
            return
        try:
            if not at_once:
                process.terminate()
                process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()

    def close(self) -> None:
        """From now on, let `start` fail."""
        self._over = True


def environment(env: Mapping[str, str]) -> dict[str, Any]:
    """Return a child's environment: this process's, without settings of `sublet serve`, with `env` and the
    path to import Sublet.
    """
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    path = os.pathsep.join(filter(None, [*import_folders(), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "SUBLET_SOURCE": "", **env}


def where(redis_url: str, namespace: str) -> list[str]:
    """Return the flags for server and namespace. A URL with a user, password or options is left out."""
    url = ["--redis-url", redis_url] if has_no_secret(redis_url) else []
    return [*url, "--namespace", namespace]


def has_no_secret(redis_url: str) -> bool:
    """Whether a URL has no user, password or options: these may be secret."""
    return Settings(redis_url=redis_url).shown_url == redis_url


def _read_stdout(process: "subprocess.Popen[bytes]", first_line: "queue.SimpleQueue[bytes]") -> None:
    assert process.stdout is not None
    with process.stdout as pipe:
        first_line.put(pipe.readline())
        for _ in pipe:  # a full pipe would block it
            pass


def _read_stderr(process: "subprocess.Popen[bytes]", on_line: OnLine) -> None:
    assert process.stderr is not None
    with process.stderr as pipe:
        for line in pipe:
            on_line(line)


def free_port() -> int:
    """Return the first free port from 8377, or 0 (the system chooses) if 100 ports are taken."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        if is_free(port):
            return port
    return 0


def is_free(port: int) -> bool:
    """Whether a port of 127.0.0.1 is free; True if unknown."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError as error:
        return error.errno != errno.EADDRINUSE
