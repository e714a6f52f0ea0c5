"""A worker process of the demo, and the JSON lines that it prints."""

import contextlib
import json
import os
import signal
from typing import NamedTuple


class WorkerEvent(NamedTuple):
    """A printed line: the event, the job and the attempt."""

    event: str
    job: str
    task: str
    attempt: int
    detail: str


def parse_event(line: str) -> WorkerEvent | None:
    """Parse a line. Return None for an incomplete line of a killed worker, and for output of other programs."""
    try:
        fields = {"id": "", "task": "", "attempt": 0, "detail": "", **json.loads(line)}
        return WorkerEvent(fields["event"], fields["id"], fields["task"], fields["attempt"], fields["detail"])
    except (ValueError, TypeError, KeyError):
        return None


class WorkerProcess:
    """One summoned `sublet work`, killed when this process ends."""

    def __init__(self, number: int, pid: int, name: str) -> None:
        self.number, self.pid, self.name = number, pid, name
        self.fate = ""
        """`frozen` or `killed` by the demo; `died` or `left` by itself; otherwise empty."""
        self.exit: int | None = None
        """Negative for a signal; None while it runs."""

    def __str__(self) -> str:
        return f"worker {self.number}"

    def freeze(self) -> None:
        """Stop it (SIGSTOP) and return when it has stopped. Its child processes continue."""
        self.fate = "frozen"
        self._signal(signal.SIGSTOP)
        self._await("WSTOPPED")

    def resume(self) -> None:
        """Let it continue (SIGCONT)."""
        self.fate = ""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL) and return when it has ended."""
        self.fate = "killed"
        self._signal(signal.SIGKILL)
        self._await("WEXITED")

    def _signal(self, number: signal.Signals) -> None:
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _await(self, state: str) -> None:
        """Wait until it stopped or ended. WNOWAIT leaves its exit status to the invoker."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, getattr(os, state) | os.WEXITED | os.WNOWAIT)
