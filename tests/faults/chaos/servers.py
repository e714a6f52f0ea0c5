"""A server of one's own at a port that it keeps: it may be killed, frozen, and started again on the same data."""

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
from sublet.tasks.bound_process import spawn_bound
from tests.faults.chaos.script_time import ScriptTime, longest_script

SECONDS = 20.0
"""How long a server may take to start, and to answer."""


class Missing(Exception):
    """Something that a scenario takes is not on this machine; the words say what, and how to get it."""


SLOWLOG = {"slowlog-log-slower-than": 1000, "slowlog-max-len": 10_000}
"""Each server notes what held it for a millisecond or longer."""


def connect(url: str) -> Any:
    """A client for whoever makes the trouble: it waits 20 s for an answer, and sends nothing twice."""
    return redis.Redis.from_url(url, protocol=2, socket_timeout=SECONDS, retry=Retry(NoBackoff(), 0))


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A Valkey or Redis on loopback, its data in one folder. `options` are those of its configuration file."""

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
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers. Raises Unavailable, with the last line that it has written."""
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
        """Why it does not serve: whether it ended, how, and its last words; of its log what stands after `begin`."""
        said = (self.folder / "server.log").read_bytes()[begin:].decode(errors="replace").split("\n")
        last = next((line.strip()[-300:] for line in reversed(said) if line.strip()), "")
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        what = (
            f"{self.binary} does not answer after {SECONDS:g} s"
            if code is None
            else f"{self.binary} ended {how}"
        )
        return f"no server at {self.url}: {what}{f': {last}' if last else ' without output: is it a Redis or Valkey?'}"

    def answers(self) -> bool:
        """Does it serve?"""
        with suppress(redis.RedisError, OSError):
            return bool(self.client.ping())
        return False

    def longest_script(self) -> ScriptTime:
        """The longest that one of our scripts held it, since it was made; none if none did for a millisecond."""
        if self.process.poll() is None and not self.frozen:
            self._held = max(self._held, longest_script(self.client))
        return self._held

    def kill(self) -> None:
        """End it with no chance to write anything."""
        self.longest_script()  # its log dies with it
        self.process.kill()
        self.process.wait(SECONDS)

    def restart(self) -> None:
        """Kill it, and start it again on what it has written."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Let it stand still; its connections stay open."""
        self.longest_script()
        self.frozen = True
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)
        with suppress(redis.RedisError, OSError):  # no script held it for as long as it stood still
            self.client.slowlog_reset()
        self.frozen = False

    def close(self) -> None:
        """End it for good."""
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)


def _prefer(pid: int) -> None:
    """Have a server go before all other processes, where this user may say so: a script's time is then its own."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
