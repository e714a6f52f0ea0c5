"""The demo's workers, and a ledger of their events."""

import contextlib
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

from sublet.connection.settings import Settings
from sublet.devtools.demo.worker_process import WorkerEvent, WorkerProcess, parse_event
from sublet.devtools.demo.worker_thread import WorkerThread
from sublet.errors import JobsError
from sublet.operations.pool import Pool

POOL, WORKERS, SLOTS = "demo", 3, 2
"""The pool's name, its maximum number of workers, and the slots of each."""
WAIT, LINGER = 0.5, 5.0
"""The pool's maximum waiting time (short, so that little work needs all workers) and the workers' idle time,
in seconds."""


class DemoFailed(JobsError):
    """The demo cannot continue."""


class Ledger:
    """The workers' reports, kept outside Redis to check its state."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        """Accepted completions by job."""
        self.completed: Counter[int] = Counter()
        """Accepted completions by worker."""
        self.ghosts: Counter[int] = Counter()
        """Refused heartbeats and outcomes, by worker."""
        self.started: set[tuple[int, str, int]] = set()
        """Worker, job and attempt."""

    def record(self, worker: WorkerProcess, event: WorkerEvent) -> None:
        """Record an event."""
        if event.event == "started":
            self.started.add((worker.number, event.job, event.attempt))
        elif event.event == "completed":
            self.accepted[event.job] += 1
            self.completed[worker.number] += 1
        elif event.event == "lost" or (event.event == "refused" and "LEASE_LOST" in event.detail):
            self.ghosts[worker.number] += 1


class WorkerGroup:
    """The workers of the pool: a context manager that stops them all."""

    def __init__(self, settings: Settings, queue: str, lease: float, log: Path) -> None:
        self.workers: list[WorkerProcess] = []
        self.ledger = Ledger()
        self._received: SimpleQueue[tuple[int, str | int]] = SimpleQueue()
        self._log = open(log, "w", errors="replace")  # noqa: SIM115  `close` closes it
        pool = Pool(
            name=POOL, queues=(queue,), invoker="process", max=WORKERS, slots=SLOTS, wait=WAIT, linger=LINGER
        )
        self._thread = WorkerThread(
            settings,
            pool,
            lease,
            on_line=lambda pid, line: self._received.put((pid, line)),
            on_end=lambda pid, code: self._received.put((pid, code)),
        )

    def active(self) -> list[WorkerProcess]:
        """Return the workers that are neither frozen, killed nor ended."""
        return [worker for worker in self.workers if not worker.fate]

    def label(self, name: str | None) -> str:
        """Return a worker's label ("worker 2") by its name in Redis."""
        return next((str(worker) for worker in self.workers if worker.name == name), str(name))

    def read_events(self) -> list[tuple[WorkerProcess, WorkerEvent]]:
        """Return the events since the last call, recorded in the ledger. Raises DemoFailed."""
        if self._thread.error:
            words = f"workers are no longer summoned ({self._thread.error}): start the demo again"
            raise DemoFailed(words + self._log_tail())
        events = []
        with contextlib.suppress(Empty):
            while True:
                pid, line_or_code = self._received.get_nowait()
                event = self._process(pid, line_or_code)
                if event:
                    events.append(event)
        return events

    def _process(self, pid: int, line_or_code: str | int) -> tuple[WorkerProcess, WorkerEvent] | None:
        worker = next((worker for worker in reversed(self.workers) if worker.pid == pid), None)
        if isinstance(line_or_code, int):
            if worker:
                worker.exit = line_or_code
            return None
        event = parse_event(line_or_code)
        if event is None:
            self._log.write(f"{line_or_code}\n")
            return None
        if event.event == "ready":
            worker = WorkerProcess(len(self.workers) + 1, pid, event.detail.split()[0])
            self.workers.append(worker)
        if worker is None:
            return None
        self.ledger.record(worker, event)
        return worker, event

    def take_ended(self) -> list[WorkerProcess]:
        """Return the workers that ended by themselves since the last call: failed or idle."""
        ended = [worker for worker in self.active() if worker.exit is not None]
        for worker in ended:
            worker.fate = "died" if worker.exit else "left"
        return ended

    def _log_tail(self) -> str:
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()[-8:]
        return ":\n" + "\n".join(lines) if lines else ""

    def close(self) -> None:
        """Stop all workers, and kill slow ones. If interrupted, kill the others at once."""
        for worker in self.workers:
            if worker.fate == "frozen":
                worker.resume()
        self._thread.close()
        self._log.close()

    def __enter__(self) -> "WorkerGroup":
        try:
            self._thread.open()
        except BaseException:
            self._log.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
