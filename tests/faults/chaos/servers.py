"""A server on a fixed port that a scenario can kill, freeze and restart on its data."""

import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from sublet.devtools.embedded_server import find_binary
from sublet.errors import Unavailable
from sublet.tasks.programs.bound_process import spawn_bound
from tests.faults.chaos.script_time import ScriptTime, longest_script

SECONDS = 20.0
"""The time limit of a start and of a reply."""


class Missing(Exception):
    """A requirement of a scenario is missing; the message says how to get it."""


SLOWLOG = {"slowlog-log-slower-than": 1000, "slowlog-max-len": 10_000}
"""Record scripts of 1 ms or longer."""


def connect(url: str) -> Any:
    """A client of the harness, without retries."""
    return redis.Redis.from_url(url, protocol=2, socket_timeout=SECONDS, retry=Retry(NoBackoff(), 0))


def free_port() -> int:
    """A free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A Valkey or Redis on loopback with its data in one folder. `options` are settings of its configuration."""

    def __init__(
        self, folder: Path, *, binary: str | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        self.folder, self.port = folder, free_port()
        self.binary, self._env = find_binary(binary), {**os.environ, **(env or {})}
        self._options = {"appendonly": "yes", "save": "", "maxmemory-policy": "noeviction", **SLOWLOG} | {
            name.replace("_", "-"): value for name, value in options.items()
        }
        self._held, self.frozen = ScriptTime(), False
        folder.mkdir(parents=True, exist_ok=True)
        self.client = connect(self.url)
        self.start()

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers. Raises Unavailable with the last line of its log."""
        words = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "daemonize": "no",
        } | self._options
        command = [
            self.binary,
            *(word for name, value in words.items() for word in (f"--{name}", str(value))),
        ]
        with open(self.folder / "server.log", "ab") as log:
            begin = log.tell()
            self.process = spawn_bound(command, env=self._env, stdout=log, stderr=log)
        _prefer(self.process.pid)
        until = time.monotonic() + SECONDS
        while not self.answers():
            code = self.process.poll()
            if time.monotonic() > until or code is not None:
                self.process.kill()
                raise Unavailable(self._why(code, begin))
            time.sleep(0.01)

    def _why(self, code: int | None, begin: int) -> str:
        """Describe a failed start. `begin` is the offset of its output in the log."""
        output = (self.folder / "server.log").read_bytes()[begin:].decode(errors="replace").split("\n")
        last = next((line.strip()[-300:] for line in reversed(output) if line.strip()), "")
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        what = (
            f"{self.binary} does not answer after {SECONDS:g} s"
            if code is None
            else f"{self.binary} ended {how}"
        )
        return f"no server at {self.url}: {what}{f': {last}' if last else ' without output: is it a Redis or Valkey?'}"

    def answers(self) -> bool:
        """Whether it answers."""
        with suppress(redis.RedisError, OSError):
            return bool(self.client.ping())
        return False

    def longest_script(self) -> ScriptTime:
        """The longest run of a Sublet script since the first start."""
        if self.process.poll() is None and not self.frozen:
            self._held = max(self._held, longest_script(self.client))
        return self._held

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self.longest_script()  # before its slow log is lost
        self.process.kill()
        self.process.wait(SECONDS)

    def restart(self) -> None:
        """Kill and start it."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Send SIGSTOP. Connections stay open."""
        self.longest_script()
        self.frozen = True
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)
        with suppress(redis.RedisError, OSError):  # the slow log counts the frozen time as run time
            self.client.slowlog_reset()
        self.frozen = False

    def close(self) -> None:
        """Stop it for good."""
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)


def _prefer(pid: int) -> None:
    """Give it real-time priority if this user may, so that other processes do not lengthen its scripts."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
