"""The workers of the demo together, and the ledger of what they said."""

import contextlib
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

from sublet.connection.settings import Settings
from sublet.devtools.demo.wings import Wings
from sublet.devtools.demo.workers import Said, WorkerProcess, read
from sublet.errors import JobsError
from sublet.operations.pool import Pool

POOL, WORKERS, SLOTS = "demo", 3, 2
"""The pool, how many workers it has at most, and how many jobs each runs at a time."""
WAIT, LINGER = 0.5, 5.0
"""Seconds that a job should wait at most, so that even little work is owed all of them; and that an idle worker stays."""


class Stuck(JobsError):
    """The demo cannot go on; the message says why."""


class Ledger:
    """What the workers said, kept outside Redis: what Redis says is held against it."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        """How often a completion of a job was accepted."""
        self.completed: Counter[int] = Counter()
        """How many completions of a worker were accepted."""
        self.ghosts: Counter[int] = Counter()
        """How often a worker was told, on an ending or a heartbeat, that a lease was no longer its own."""
        self.started: set[tuple[int, str, int]] = set()
        """Worker, job and attempt."""

    def note(self, worker: WorkerProcess, said: Said) -> None:
        """Write down one line."""
        if said.event == "started":
            self.started.add((worker.number, said.job, said.attempt))
        elif said.event == "completed":
            self.accepted[said.job] += 1
            self.completed[worker.number] += 1
        elif said.event == "lost" or (said.event == "refused" and "LEASE_LOST" in said.words):
            self.ghosts[worker.number] += 1


class Cast:
    """The workers of the show, which a pool summons as it is owed them. A context manager that sees all of them gone."""

    def __init__(self, settings: Settings, queue: str, lease: float, log: Path) -> None:
        self.workers: list[WorkerProcess] = []
        self.ledger = Ledger()
        self._heard: SimpleQueue[tuple[int, str | int]] = SimpleQueue()
        self._log = open(log, "w", errors="replace")  # noqa: SIM115  # closed by `close`
        wish = Pool(
            name=POOL, queues=(queue,), invoker="process", max=WORKERS, slots=SLOTS, wait=WAIT, linger=LINGER
        )
        self._wings = Wings(
            settings, wish, lease, lambda *said: self._heard.put(said), lambda *said: self._heard.put(said)
        )

    def up(self) -> list[WorkerProcess]:
        """The workers to which nothing has happened."""
        return [worker for worker in self.workers if not worker.fate]

    def named(self, name: str | None) -> str:
        """A worker as people call it, by its name in Redis."""
        return next((str(worker) for worker in self.workers if worker.name == name), str(name))

    def listen(self) -> list[tuple[WorkerProcess, Said]]:
        """What the workers have said since this was last asked; it is in the ledger, too. Raises Stuck."""
        if self._wings.error:
            raise Stuck(f"nobody summons workers any more ({self._wings.error}){self._complaints()}")
        heard = []
        with contextlib.suppress(Empty):
            while True:
                pid, what = self._heard.get_nowait()
                said = self._note(pid, what)
                if said:
                    heard.append(said)
        return heard

    def _note(self, pid: int, what: str | int) -> tuple[WorkerProcess, Said] | None:
        """Take note of a worker's line, or of its end."""
        worker = next((worker for worker in reversed(self.workers) if worker.pid == pid), None)
        if isinstance(what, int):
            if worker:
                worker.exit = what
            return None
        said = read(what)
        if said is None:
            self._log.write(f"{what}\n")
            return None
        if said.event == "ready":
            worker = WorkerProcess(len(self.workers) + 1, pid, said.words.split()[0])
            self.workers.append(worker)
        if worker is None:
            return None
        self.ledger.note(worker, said)
        return worker, said

    def gone(self) -> list[WorkerProcess]:
        """The workers that went by themselves since this was last asked: they died, or had nothing to do and left."""
        gone = [worker for worker in self.up() if worker.exit is not None]
        for worker in gone:
            worker.fate = "died" if worker.exit else "left"
        return gone

    def _complaints(self) -> str:
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()[-8:]
        return ":\n" + "\n".join(lines) if lines else ""

    def close(self) -> None:
        """Stop all workers, and kill those that take too long. Interrupted, it kills the rest at once."""
        for worker in self.workers:
            if worker.fate == "frozen":
                worker.wake()
        self._wings.close()
        self._log.close()

    def __enter__(self) -> "Cast":
        try:
            self._wings.open()
        except BaseException:
            self._log.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
