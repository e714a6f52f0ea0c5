"""Where one contestant at a time does its work: a server, the tally that its jobs write to, and its processes."""

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contest import meter
from contest.contestants import Contestant

from sublet.tasks.bound_process import spawn_bound

ENTRY = struct.Struct("<qq")
"""An entry of the tally: a job's number, and the machine's monotonic clock in ns."""
SUBMIT_SECONDS = 300.0
"""How long a program may take to submit what it is told to."""
STOP_SECONDS = 10.0
"""How long a worker may take to end after SIGTERM, before it is killed with all that it has started."""
POLL = 0.01


@dataclass(frozen=True)
class Program:
    """How a contestant's program is started on this machine."""

    command: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)


class Failed(Exception):
    """A contestant's program did not do what it was asked to; the text has its last words."""


class Worker:
    """One worker process of a contestant's, with all that it has started."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self.log = process, log

    def check(self) -> None:
        """Raise Failed if it has ended by itself."""
        if self.process.poll() is not None:
            raise Failed(f"the worker ended with {self.process.returncode}: {self.said()}")

    def said(self) -> str:
        """Its last words."""
        return tail(self.log)

    def kill(self) -> None:
        """Kill it and all that it has started, at once (SIGKILL)."""
        for pid in [*members(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end (SIGTERM) and wait; what is left of it after ten seconds is killed."""
        try:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        finally:
            self.kill()


class Arena:
    """A server at `url`, and a `folder` for what the contestants write. Belongs to one thread."""

    STALL = 15.0
    """Seconds without another start after which the jobs that have not started are given up."""

    def __init__(self, url: str, folder: Path, programs: Mapping[str, Program]) -> None:
        self.url, self.folder, self.programs = url, folder, programs
        self._tallies, self._finished = [folder / "tally-1", folder / "tally-2"], folder / "finished"
        self._logs = 0
        self.clear()

    def flush(self) -> None:
        """Empty the server, its file of changes too, and the tallies."""
        meter.ask(self.url, "FLUSHALL", "SYNC")
        if "aof_enabled:1" in meter.ask(self.url, "INFO", "persistence"):
            meter.ask(self.url, "BGREWRITEAOF")
            until = time.monotonic() + self.STALL
            while (
                "aof_rewrite_in_progress:1" in meter.ask(self.url, "INFO", "persistence")
                and time.monotonic() < until
            ):
                time.sleep(POLL)
        self.clear()

    def clear(self) -> None:
        """Empty the tallies. Workers that run go on writing to them."""
        for path in (*self._tallies, self._finished):
            path.touch()
            os.truncate(path, 0)

    def tally(self) -> list[tuple[int, int]]:
        """Which jobs have started, and when (ns of the monotonic clock), in the order of their starts."""
        return sorted((entry for tally in self.tallies() for entry in tally), key=lambda entry: entry[1])

    def tallies(self) -> list[list[tuple[int, int]]]:
        """The same of each of two workers that do not write to one file (see `worker`)."""
        return [_entries(path) for path in self._tallies]

    def finished(self) -> list[tuple[int, int]]:
        """The same of the slow jobs that have come to their end."""
        return _entries(self._finished)

    def started(self) -> int:
        """How many starts there were."""
        return sum(path.stat().st_size for path in self._tallies) // ENTRY.size

    def submit(self, contestant: Contestant, kind: str, n: int, start: int = 0) -> float:
        """Have jobs number `start` … `start + n - 1` submitted, `one` by one, in `bulk`, or `slow` ones; seconds that it took.

        Raises Failed.
        """
        seconds: float = self.ask(contestant, "submit", kind, str(n), str(start))["seconds"]
        return seconds

    def latency(self, contestant: Contestant, n: int, start: int = 0, patience: float = 60.0) -> list[int]:
        """While a worker runs: have up to `n` jobs submitted, one when the last has started; when each was sent, in ns."""
        sent: list[int] = self.ask(contestant, "latency", str(n), str(start), BENCH_PATIENCE=str(patience))[
            "sent"
        ]
        return sent

    def ask(self, contestant: Contestant, *words: str, **variables: str) -> Any:
        """Run a contestant's program to its end, and give what it printed, as JSON. Raises Failed."""
        return json.loads(self.say(contestant, *words, **variables).splitlines()[-1])

    def say(self, contestant: Contestant, *words: str, **variables: str) -> str:
        """Run a contestant's program to its end, and give what it printed. Raises Failed."""
        log = self._log(contestant, words[0])
        with open(log, "wb") as errors:
            process = self._spawn(contestant, words, variables, stdout=subprocess.PIPE, stderr=errors)
        try:
            out, _ = process.communicate(timeout=SUBMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"{contestant.name}: `{' '.join(words)}` took longer than {SUBMIT_SECONDS:g} s"
            ) from None
        finally:
            Worker(process, log).kill()
        if process.returncode or not out.strip():
            raise Failed(
                f"{contestant.name}: `{' '.join(words)}` ended with {process.returncode}: {tail(log)}"
            )
        return out.decode()

    @contextmanager
    def worker(self, contestant: Contestant, number: int = 1, /, **variables: str) -> Iterator[Worker]:
        """Start a worker process; it is gone afterwards, politely or not, with all that it has started.

        Worker `number` 2 has a tally of its own, so that one can see when both are at work.
        """
        variables = {"BENCH_TALLY": str(self._tallies[number - 1])} | variables
        log = self._log(contestant, "work")
        with open(log, "wb") as errors:
            worker = Worker(self._spawn(contestant, ["work"], variables, stdout=errors, stderr=errors), log)
        try:
            yield worker
        finally:
            worker.stop()

    def wait(self, n: int, workers: Sequence[Worker], seconds: float = 120.0) -> int:
        """Wait until `n` jobs have started, or no more do for STALL s, or the time is up; how many have. Raises Failed."""
        begin = changed = time.monotonic()
        before = 0
        while True:
            for worker in workers:
                worker.check()
            count = self.started()
            now = time.monotonic()
            if count != before:
                before, changed = count, now
            if count >= n and len({number for number, _ in self.tally()}) >= n:
                return n
            if now - begin > seconds or now - changed > self.STALL:
                return len({number for number, _ in self.tally()})
            time.sleep(POLL)

    def _spawn(
        self, contestant: Contestant, words: Sequence[str], variables: Mapping[str, str], **streams: Any
    ) -> "subprocess.Popen[bytes]":
        program = self.programs[contestant.name]
        given = {
            "BENCH_URL": self.url,
            "BENCH_TALLY": str(self._tallies[0]),
            "BENCH_FINISHED": str(self._finished),
        }
        env = {**clean(os.environ), **given, **program.variables, **contestant.variables, **variables}
        return spawn_bound([*program.command, *words], cwd=program.folder, env=env, **streams)

    def _log(self, contestant: Contestant, word: str) -> Path:
        self._logs += 1
        return self.folder / f"{self._logs}-{contestant.word}-{word}.log"


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without what would steer a contestant: settings of ours, and where Python looks for code."""
    return {
        name: value for name, value in environ.items() if not name.startswith(("SUBLET_", "BENCH_", "PYTHON"))
    }


def members(leader: int) -> list[int]:
    """A process and what it has started, unless that has gone its own way (`setsid`)."""
    found = []
    for pid in _pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def tail(log: Path, lines: int = 6) -> str:
    """The last lines of what a program said."""
    words = log.read_text(errors="replace").strip().splitlines()
    return "\n".join(words[-lines:]) or "(it said nothing)"


def _pids() -> list[int]:
    if Path("/proc/self/stat").exists():
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    said = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True)
    return [int(word) for word in said.stdout.split()]


def _entries(path: Path) -> list[tuple[int, int]]:
    data = path.read_bytes()
    return list(ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]))
