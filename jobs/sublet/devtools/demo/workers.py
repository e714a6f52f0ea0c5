"""A worker process of the demo, as the audience sees it: frozen, woken, killed. Its words are the JSON lines it prints."""

import contextlib
import json
import os
import signal
from typing import NamedTuple


class Said(NamedTuple):
    """A line that a worker printed: what happened, to which job, in which attempt of it."""

    event: str
    job: str
    task: str
    attempt: int
    words: str


def read(line: str) -> Said | None:
    """A worker's line; None for half a line of one that was killed, and for what others print."""
    try:
        said = {"id": "", "task": "", "attempt": 0, "words": "", **json.loads(line)}
        return Said(said["event"], said["id"], said["task"], said["attempt"], said["words"])
    except (ValueError, TypeError, KeyError):
        return None


class WorkerProcess:
    """One `sublet work` that was summoned. It dies with this process, however that dies."""

    def __init__(self, number: int, pid: int, name: str) -> None:
        self.number, self.pid, self.name = number, pid, name
        self.fate = ""
        """What we did to it: `frozen`, `killed`; `died` or `left` when it went by itself."""
        self.exit: int | None = None
        """Its exit code, negative for a signal; None while it lives."""

    def __str__(self) -> str:
        return f"worker {self.number}"

    def freeze(self) -> None:
        """Stop it where it is, as a suspended machine does, and return when it stands still. Its child processes go on."""
        self.fate = "frozen"
        self._signal(signal.SIGSTOP)
        self._await("WSTOPPED")

    def wake(self) -> None:
        """Let it go on."""
        self.fate = ""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once; it has no time for a last word."""
        self.fate = "killed"
        self._signal(signal.SIGKILL)
        self._await("WEXITED")

    def _signal(self, number: signal.Signals) -> None:
        if self.exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _await(self, what: str) -> None:
        """Wait until it stands still, or is dead; whoever has started it hears of that, too."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, getattr(os, what) | os.WEXITED | os.WNOWAIT)
