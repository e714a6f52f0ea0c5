"""The processes of a scenario: workers, producers and HTTP handlers, which it kills and freezes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sublet.errors import Unavailable
from sublet.source_tree import import_folders
from sublet.tasks.programs.bound_process import spawn_bound
from tests.faults.chaos.ledger import Ledger
from tests.faults.chaos.servers import free_port
from tests.faults.chaos.tasks import QUEUES
from tests.support.processes import plain_environment

SECONDS = 30.0
"""The time limit for a process to be ready or to stop."""
ROOT = Path(__file__).parents[3]


class Process:
    """One process."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]") -> None:
        self.name, self.popen, self.frozen = name, popen, False
        self._ended = False

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; it may be frozen."""
        return self.popen.poll() is None

    @property
    def ended_early(self) -> bool:
        """Whether it has ended by itself."""
        return not self.is_running and not self._ended

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._ended = True
        self.popen.kill()
        self.popen.wait(SECONDS)

    def freeze(self) -> None:
        """Send SIGSTOP."""
        os.kill(self.popen.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Send SIGCONT."""
        os.kill(self.popen.pid, signal.SIGCONT)
        self.frozen = False

    def stop(self) -> None:
        """Send SIGTERM and wait; SIGKILL after a timeout."""
        if self.is_running:
            self._ended = True
            self.thaw()
            self.popen.terminate()
        try:
            self.popen.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


class Processes:
    """All processes of a scenario, with `env` in their environment."""

    def __init__(self, ledger: Ledger, env: Mapping[str, str]) -> None:
        clean = plain_environment("FAKETIME")
        self.env = {**clean, "PYTHONPATH": os.pathsep.join([*import_folders(), str(ROOT)]), **env}
        self._ledger = ledger
        self.workers: list[Process] = []
        self.producers: list[Process] = []
        self.handlers: list[Process] = []
        self._made = 0

    def start_worker(
        self, *words: str, lease: float = 2.0, slots: int = 10, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a worker. Its ledger has an entry when it is ready."""
        command = [
            "-m",
            "sublet",
            "work",
            "tests.faults.chaos.tasks:app",
            "--json",
            "--lease",
            f"{lease:g}s",
            "--slots",
            str(slots),
        ]
        worker = self._start(
            "worker", [*command, "--queues", ",".join(QUEUES), "--processes", "1", *words], env
        )
        self.workers.append(worker)
        return worker

    def start_producer(
        self, rate: float, seconds: float = 0.05, *more: str, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a producer of `rate` jobs per second, each of which takes `seconds`. `more`: see its module."""
        name = self._name("producer")
        words = [
            "-m",
            "tests.faults.chaos.producer",
            name,
            str(self._ledger.path(name)),
            str(rate),
            str(seconds),
            *more,
        ]
        self.producers.append(self._start(name, words, env, numbered=True))
        return self.producers[-1]

    def start_writer(self, name: str, module: str, words: Sequence[str]) -> None:
        """Start a producer of another kind, which writes its own ledger."""
        self.producers.append(self._start(name, ["-m", module, *words], None, numbered=True))

    def start_api(self, port: int | None = None, env: Mapping[str, str] | None = None) -> tuple[Process, int]:
        """Start the HTTP API and wait until it answers. Return the process and its port."""
        port = port or free_port()
        handler = self._start("handler", ["-m", "sublet", "serve", "--json", "--port", str(port)], env)
        self.handlers.append(handler)
        until = time.monotonic() + SECONDS
        while not _is_up(port):
            if not handler.is_running or time.monotonic() > until:
                raise Unavailable(f"{handler.name} does not answer at port {port}")
            time.sleep(0.02)
        return handler, port

    def command(self, *words: str) -> tuple[int, Any]:
        """Run a `sublet` command. Return its exit code and its JSON output."""
        line = [sys.executable, "-m", "sublet", *words, "--json"]
        done = subprocess.run(
            line, env=self.env, cwd=ROOT, capture_output=True, timeout=2 * SECONDS, check=False
        )
        return done.returncode, json.loads(done.stdout or b"null")

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _start(
        self, kind: str, words: list[str], env: Mapping[str, str] | None, *, numbered: bool = False
    ) -> Process:
        name = kind if numbered else self._name(kind)
        folder = self._ledger.folder
        out = os.devnull if numbered or kind == "handler" else self._ledger.path(name)
        with open(out, "ab") as out_file, open(folder / f"{name}.err", "ab") as err:
            process = spawn_bound(
                [sys.executable, *words],
                env=self.env | dict(env or {}),
                cwd=ROOT,
                stdout=out_file,
                stderr=err,
            )
        return Process(name, process)

    @property
    def ended_early(self) -> list[str]:
        """The processes that ended by themselves, with the end of their output."""
        ended = [
            process for process in (*self.producers, *self.workers, *self.handlers) if process.ended_early
        ]
        return [f"{process.name} ({self._last_words(process)})" for process in ended]

    def _last_words(self, process: Process) -> str:
        output = (self._ledger.folder / f"{process.name}.err").read_text(errors="replace").strip()
        return f"exit {process.popen.returncode}: {output[-300:]}"

    @property
    def running(self) -> list[Process]:
        """The workers that are neither ended nor frozen."""
        return [worker for worker in self.workers if worker.is_running and not worker.frozen]

    def close(self) -> None:
        """Kill all remaining processes."""
        for process in (*self.producers, *self.workers, *self.handlers):
            if process.is_running:
                with suppress(ProcessLookupError):
                    process.kill()


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
