"""The workers of the demo together, and the ledger of what they said."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from jobs.demo.workers import Said, WorkerProcess
from jobs.errors import JobsError

READY_SECONDS = 30.0
"""How long workers may take to start."""
STOP_SECONDS = 4.0
"""How long workers may take to give back what they hold before they are killed."""


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
    """Some worker processes. A context manager that sees all of them gone."""

    def __init__(self, arguments: Sequence[str], redis_url: str, log: Path) -> None:
        self.workers: list[WorkerProcess] = []
        self.ledger = Ledger()
        self._arguments, self._redis_url = arguments, redis_url
        self._log = open(log, "wb")  # noqa: SIM115  # closed by `close`

    def up(self) -> list[WorkerProcess]:
        """The workers to which nothing has happened."""
        return [worker for worker in self.workers if not worker.fate]

    def named(self, name: str | None) -> str:
        """A worker as people call it, by its name in Redis."""
        return next((str(worker) for worker in self.workers if worker.name == name), str(name))

    def fill(self, count: int) -> list[WorkerProcess]:
        """Start workers until `count` are up, wait for them, and give the new ones. Raises Stuck."""
        first = len(self.workers) + 1
        for number in range(first, first + count - len(self.up())):
            self.workers.append(WorkerProcess.start(number, self._arguments, self._redis_url, self._log))
        new, deadline = self.workers[first - 1 :], time.monotonic() + READY_SECONDS
        while not all(worker.name for worker in new):
            self.listen()
            if self.died() or time.monotonic() > deadline:
                raise Stuck(f"the workers did not start in {READY_SECONDS:g} s{self._complaints()}")
            time.sleep(0.01)
        return new

    def listen(self) -> list[tuple[WorkerProcess, Said]]:
        """What the workers have said since this was last asked; it is in the ledger, too."""
        heard = [(worker, said) for worker in self.workers for said in worker.heard()]
        for worker, said in heard:
            self.ledger.note(worker, said)
        return heard

    def died(self) -> list[WorkerProcess]:
        """The workers that went by themselves since this was last asked. Raises Stuck when none is left."""
        dead = [worker for worker in self.up() if worker.exit is not None]
        for worker in dead:
            worker.fate = "died"
        if dead and not self.up():
            raise Stuck(f"the last worker died ({dead[-1].exit}){self._complaints()}")
        return dead

    def _complaints(self) -> str:
        self._log.flush()
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()[-8:]
        return ":\n" + "\n".join(lines) if lines else ""

    def close(self) -> None:
        """Stop all workers, and kill those that take too long. Interrupted, it kills the rest at once."""
        deadline = time.monotonic() + STOP_SECONDS
        try:
            for worker in self.workers:
                worker.stop()
            for worker in self.workers:
                worker.end(deadline - time.monotonic())
        finally:
            for worker in self.workers:
                worker.end(0)
            self._log.close()

    def __enter__(self) -> "Cast":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
