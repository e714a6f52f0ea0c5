"""A worker process of the demo: started, listened to, frozen, woken, killed. Its words are the JSON lines it prints."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from jobs.embedded import spawn_bound

HOME = Path(__file__).resolve().parent.parent.parent
"""Where `jobs` is imported from; a worker must find the same one, whatever lies in the folder in which the demo runs."""


class Said(NamedTuple):
    """A line that a worker printed: what happened, to which job, in which attempt of it."""

    event: str
    job: str
    task: str
    attempt: int
    words: str


class WorkerProcess:
    """One `sublet work`. It dies with this process, however that dies."""

    def __init__(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        self.number = number
        self.name = ""
        """What it calls itself in Redis; empty until it is ready."""
        self.fate = ""
        """What we did to it: `frozen`, `killed`; `died` when it went by itself."""
        self._process = process
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name=f"worker-{number}", daemon=True).start()

    def __str__(self) -> str:
        return f"worker {self.number}"

    @classmethod
    def start(cls, number: int, arguments: Sequence[str], redis_url: str, log: IO[bytes]) -> "WorkerProcess":
        """Start `sublet work …` on a server; what it has to complain about goes to `log`."""
        path = os.pathsep.join(filter(None, [str(HOME), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "SUBLET_REDIS_URL": redis_url, "SUBLET_SOURCE": ""}
        command = [sys.executable, "-P", "-m", "jobs", "work", "jobs.demo.tasks:app", "--json", *arguments]
        return cls(number, spawn_bound(command, stdout=subprocess.PIPE, stderr=log, env=environment))

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # half a line: it was killed
                said = {"id": "", "task": "", "attempt": 0, "words": "", **json.loads(line)}
                self._said.put(Said(said["event"], said["id"], said["task"], said["attempt"], said["words"]))

    def heard(self) -> list[Said]:
        """What it has said since this was last asked."""
        lines = []
        with contextlib.suppress(queue.Empty):
            while True:
                lines.append(self._said.get_nowait())
        for said in lines:
            if said.event == "ready":
                self.name = said.words.split()[0]
        return lines

    @property
    def exit(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.poll()

    def freeze(self) -> None:
        """Stop it where it is, as a suspended machine does, and return when it stands still. Its child processes go on."""
        self.fate = "frozen"
        self._process.send_signal(signal.SIGSTOP)
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def wake(self) -> None:
        """Let it go on."""
        self.fate = ""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once; it has no time for a last word."""
        self.fate = "killed"
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to give back what it holds and go."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()

    def end(self, seconds: float) -> None:
        """See it gone: wait so long, then kill it."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdin:
            self._process.stdin.close()
