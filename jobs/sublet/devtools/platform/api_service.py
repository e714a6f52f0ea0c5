"""The platform's HTTP API: a `sublet serve` in a process of its own, as anybody would run it."""

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
from sublet.tasks.bound_process import spawn_bound

"""Where `jobs` is imported from; what is started must find the same one, whatever lies in the folder in which this runs."""
FIRST_PORT, PORTS = 8377, 100
"""The port that is tried first, and how many are tried before any free one will do."""
READY_SECONDS = 30.0
"""How long the API may take to be up."""
STOP_SECONDS = 2.0
"""How long it may take to answer who waits before it is killed."""
ANSWER_SECONDS = 1.5
"""How long it may take to answer a question after its health."""
TRIES = 3
"""Starts, when others take the port in the same moment."""
OURS = ("SUBLET_TOKENS", "SUBLET_TOKENS_FILE", "SUBLET_OPEN", "SUBLET_HOST", "SUBLET_PORT", "PORT")
"""Settings of a person's own servers, which are not meant for this one."""

Hear = Callable[[bytes], None]
"""Is given each line that it writes to its log, from a thread."""


class ApiService:
    """One `sublet serve` for this machine alone. It dies with this process, however that dies.

    `port` 0 takes the usual port or the next that is free. Started anew, it is where it was.
    """

    name = "api"

    def __init__(self, env: Mapping[str, str], hear: Hear, port: int = 0) -> None:
        self.url = ""
        """Where it is, once it is up."""
        self._env, self._hear, self._port = env, hear, port
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def start(self) -> str:
        """Start it, where it was before if it was up, and wait for it. Raises JobsError."""
        port = int(self.url.rpartition(":")[2]) if self.url else self._port
        if port and not self.url and not is_free(port):
            raise JobsError(
                f"port {port} is taken: end what listens there, or leave --port out, which finds one that is free"
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
        raise JobsError(f"the HTTP API did not start {where}; its own words, if any, stand above")

    @property
    def exit(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.poll() if self._process else 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid if self._process else 0

    def _start(self, port: int) -> str | None:
        """Start it once on this port: its URL, or None when it ended or said nothing in time."""
        if self._over:
            return None
        command = [
            sys.executable,
            "-P",
            "-m",
            "sublet",
            "serve",
            "--json",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        pipe = subprocess.PIPE
        self._process = process = spawn_bound(command, stdout=pipe, stderr=pipe, env=environment(self._env))
        said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        for job in (lambda: _first(process, said), lambda: _each(process, self._hear)):
            threading.Thread(target=job, name="api", daemon=True).start()
        with contextlib.suppress(queue.Empty, ValueError, KeyError):
            return str(json.loads(said.get(timeout=READY_SECONDS))["url"])
        return None

    async def answers(self) -> bool:
        """Does it say that it is well?"""
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
        """Have it answer who waits, and see it gone."""
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
        """Start it no more."""
        self._over = True


def environment(env: Mapping[str, str]) -> dict[str, Any]:
    """What a process of the platform finds in its environment: what is here, this package, and `env`."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    path = os.pathsep.join(filter(None, [*import_folders(), os.environ.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "SUBLET_SOURCE": "", **env}


def where(redis_url: str, namespace: str) -> list[str]:
    """Flags that say where the jobs are, whatever an app was given in its code; the environment report so, too.

    A URL with a password is not among them: command lines can be read by everybody on a machine.
    """
    url = ["--redis-url", redis_url] if has_no_secret(redis_url) else []
    return [*url, "--namespace", namespace]


def has_no_secret(redis_url: str) -> bool:
    """May this URL be shown?"""
    return Settings(redis_url=redis_url).shown_url == redis_url


def _first(process: "subprocess.Popen[bytes]", said: "queue.SimpleQueue[bytes]") -> None:
    assert process.stdout is not None
    with process.stdout as pipe:
        said.put(pipe.readline())
        for _ in pipe:  # it report nothing more; a pipe that is full would hold it up
            pass


def _each(process: "subprocess.Popen[bytes]", hear: Hear) -> None:
    assert process.stderr is not None
    with process.stderr as pipe:
        for line in pipe:
            hear(line)


def free_port() -> int:
    """A port on which nobody listens now: this one or the next that is free; 0, which leaves the choice, where all are taken."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        if is_free(port):
            return port
    return 0


def is_free(port: int) -> bool:
    """Does nobody listen on this port now? True also where this process may not listen: the API report why not."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError as error:
        return error.errno != errno.EADDRINUSE
