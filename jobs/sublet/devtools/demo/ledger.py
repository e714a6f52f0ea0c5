"""The demo's workers and their reports, kept outside Redis to check what Redis has."""

import contextlib
import os
import signal
from collections import Counter

from sublet.devtools.platform.reports import PlatformEvent


class Worker:
    """One worker process, which the demo may freeze or kill."""

    def __init__(self, number: int, pid: int, name: str) -> None:
        self.number, self.pid, self.name = number, pid, name
        self.exit: int | None = None
        """The exit code, negative for a signal; None while it runs."""
        self.completed = 0
        """Its accepted completions."""
        self.ghosts = 0
        """Attempts with a refused heartbeat or outcome."""
        self._accident = ""

    def __str__(self) -> str:
        return f"worker {self.number}"

    @property
    def fate(self) -> str:
        """`frozen` or `killed` by the demo; `died` or `left` by itself; otherwise empty."""
        ended = "" if self.exit is None else "died" if self.exit else "left"
        return self._accident or ended

    def freeze(self) -> None:
        """Stop the process (SIGSTOP); return when it has stopped. Its child processes continue."""
        self._accident = "frozen"
        self._signal(signal.SIGSTOP)
        self._await("WSTOPPED")

    def resume(self) -> None:
        """Let the process continue after `freeze` (SIGCONT)."""
        self._accident = ""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process (SIGKILL); return when it has ended."""
        self._accident = "killed"
        self._signal(signal.SIGKILL)
        self._await("WEXITED")

    def _signal(self, number: signal.Signals) -> None:
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _await(self, state: str) -> None:
        """Wait until the process is in `state` or has ended; WNOWAIT leaves the exit status."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, getattr(os, state) | os.WEXITED | os.WNOWAIT)


class Ledger:
    """The workers, and what they reported."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.accepted: Counter[str] = Counter()
        """Accepted completions, counted by job id."""
        self.started: set[tuple[int, str, int]] = set()
        """Process id, job id and number of each attempt."""

    def record(self, event: PlatformEvent) -> Worker | None:
        """Record a worker's or job's event. Return its worker; None if unknown."""
        if event.source not in ("worker", "job"):
            return None
        more = event.more
        if event.event == "ready":
            self.workers.append(Worker(len(self.workers) + 1, more["pid"], more["name"]))
        worker = next((each for each in reversed(self.workers) if each.pid == more.get("pid")), None)
        if worker is None:
            return None
        if event.event == "started":
            self.started.add((worker.pid, more["id"], more["attempt"]))
        elif event.event == "completed":
            self.accepted[more["id"]] += 1
            worker.completed += 1
        elif event.event == "lost" or (event.event == "refused" and "LEASE_LOST" in event.detail):
            worker.ghosts += 1
        elif event.event in ("gone", "died"):
            worker.exit = more.get("exit", 0)
        return worker

    def active(self) -> list[Worker]:
        """Return the workers neither frozen, killed nor ended."""
        return [worker for worker in self.workers if not worker.fate]

    def label(self, name: str) -> str:
        """Return a worker's label ("worker 2") by its name in Redis, else the name."""
        return next((str(worker) for worker in self.workers if worker.name == name), name)
