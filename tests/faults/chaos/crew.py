"""The processes of a scenario: workers, producers and HTTP handlers, each the real program, to be killed and frozen."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sublet.errors import Unavailable
from sublet.source_tree import import_folders
from sublet.tasks.bound_process import spawn_bound
from tests.faults.chaos.ledger import Ledger
from tests.faults.chaos.servers import free_port
from tests.faults.chaos.tasks import QUEUES

SECONDS = 30.0
"""How long a process may take to be ready, and to go."""
ROOT = Path(__file__).parents[3]


class Hand:
    """One process, and what can be done to it."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        self.name, self.process, self.frozen = name, process, False
        self._ended = False

    @property
    def lives(self) -> bool:
        """Is it there, frozen or not?"""
        return self.process.poll() is None

    @property
    def went(self) -> bool:
        """Has it gone though nobody ended it?"""
        return not self.lives and not self._ended

    def kill(self) -> None:
        """End it with no chance to say anything."""
        self._ended = True
        self.process.kill()
        self.process.wait(SECONDS)

    def freeze(self) -> None:
        """Let it stand still, as a paused machine does."""
        os.kill(self.process.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)
        self.frozen = False

    def stop(self) -> None:
        """Ask it to go, and wait until it has; one that will not is killed."""
        if self.lives:
            self._ended = True
            self.thaw()
            self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


class Crew:
    """All processes of a scenario. `env` leads them to their Redis."""

    def __init__(self, ledger: Ledger, env: Mapping[str, str]) -> None:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SUBLET_", "REDIS_", "FAKETIME"))
        }
        self.env = {**clean, "PYTHONPATH": os.pathsep.join([*import_folders(), str(ROOT)]), **env}
        self._ledger = ledger
        self.workers: list[Hand] = []
        self.producers: list[Hand] = []
        self.handlers: list[Hand] = []
        self._made = 0

    def hire(
        self, *words: str, lease: float = 2.0, slots: int = 10, env: Mapping[str, str] | None = None
    ) -> Hand:
        """Start a worker; it says itself in the ledger when it is ready."""
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

    def produce(self, rate: float, seconds: float = 0.05, env: Mapping[str, str] | None = None) -> Hand:
        """Start a producer of so many jobs a second, which take a worker so many seconds each."""
        name = self._name("producer")
        words = [
            "-m",
            "tests.faults.chaos.producer",
            name,
            str(self._ledger.path(name)),
            str(rate),
            str(seconds),
        ]
        self.producers.append(self._start(name, words, env, numbered=True))
        return self.producers[-1]

    def serve(self, port: int | None = None, env: Mapping[str, str] | None = None) -> tuple[Hand, int]:
        """Start the HTTP API on a port of loopback, and wait until it answers; the process and the port."""
        port = port or free_port()
        handler = self._start("handler", ["-m", "sublet", "serve", "--json", "--port", str(port)], env)
        self.handlers.append(handler)
        until = time.monotonic() + SECONDS
        while not _is_up(port):
            if not handler.lives or time.monotonic() > until:
                raise Unavailable(f"{handler.name} does not answer at port {port}")
            time.sleep(0.02)
        return handler, port

    def command(self, *words: str) -> tuple[int, Any]:
        """Run a command of `sublet` to its end: its exit code, and the document that it said."""
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
    ) -> Hand:
        name = kind if numbered else self._name(kind)
        folder = self._ledger.folder
        out = os.devnull if numbered or kind == "handler" else self._ledger.path(name)
        with open(out, "ab") as said, open(folder / f"{name}.err", "ab") as err:
            process = spawn_bound(
                [sys.executable, *words], env=self.env | dict(env or {}), cwd=ROOT, stdout=said, stderr=err
            )
        return Hand(name, process)

    @property
    def went(self) -> list[str]:
        """Those who have gone though nobody ended them, each with its last words."""
        hands = [hand for hand in (*self.producers, *self.workers, *self.handlers) if hand.went]
        return [f"{hand.name} ({self._last_words(hand)})" for hand in hands]

    def _last_words(self, hand: Hand) -> str:
        said = (self._ledger.folder / f"{hand.name}.err").read_text(errors="replace").strip()
        return f"exit {hand.process.returncode}: {said[-300:]}"

    @property
    def alive(self) -> list[Hand]:
        """The workers that are there and not frozen."""
        return [worker for worker in self.workers if worker.lives and not worker.frozen]

    def close(self) -> None:
        """End whoever is left."""
        for hand in (*self.producers, *self.workers, *self.handlers):
            if hand.lives:
                with suppress(ProcessLookupError):
                    hand.kill()


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
