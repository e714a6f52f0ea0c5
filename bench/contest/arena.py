"""Where one contestant at a time works: a server, its jobs' tally, its processes."""

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

from sublet.tasks.programs.bound_process import spawn_bound

ENTRY = struct.Struct("<qq")
SUBMIT_SECONDS = 300.0
STOP_SECONDS = 10.0
POLL = 0.01


@dataclass(frozen=True)
class Program:
    """The command of a contestant's program on this machine."""

    command: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)


class Failed(Exception):
    """A contestant's program failed; the text has its last output."""


class Worker:
    """A worker process of a contestant, with its child processes."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process, self.log = process, log

    def check(self) -> None:
        if self.process.poll() is not None:
            raise Failed(f"the worker ended with {self.process.returncode}: {self.said()}")

    def said(self) -> str:
        return tail(self.log)

    def kill(self) -> None:
        for pid in [*members(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM and wait; after ten seconds, kill it and its child processes."""
        try:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        finally:
            self.kill()


class Arena:
    """A server at `url`, and a `folder` for the contestants' files. Belongs to one thread."""

    STALL = 15.0

    def __init__(self, url: str, folder: Path, programs: Mapping[str, Program]) -> None:
        self.url, self.folder, self.programs = url, folder, programs
        self._tallies, self._finished = [folder / "tally-1", folder / "tally-2"], folder / "finished"
        self._logs = 0
        self.clear()

    def flush(self) -> None:
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
        for path in (*self._tallies, self._finished):
            path.touch()
            os.truncate(path, 0)

    def tally(self) -> list[tuple[int, int]]:
        """Return the started jobs and their starts (monotonic ns), in order."""
        return sorted((entry for tally in self.tallies() for entry in tally), key=lambda entry: entry[1])

    def tallies(self) -> list[list[tuple[int, int]]]:
        """Return the same for two workers with a tally each (see `worker`)."""
        return [_entries(path) for path in self._tallies]

    def finished(self) -> list[tuple[int, int]]:
        return _entries(self._finished)

    def started(self) -> int:
        return sum(path.stat().st_size for path in self._tallies) // ENTRY.size

    def submit(self, contestant: Contestant, kind: str, n: int, start: int = 0) -> float:
        """Submit jobs `start` … `start + n - 1`, `one` by one, in `bulk`, or `slow` ones. Return the seconds.
        Raises Failed.
        """
        seconds: float = self.ask(contestant, "submit", kind, str(n), str(start))["seconds"]
        return seconds

    def latency(self, contestant: Contestant, n: int, start: int = 0, patience: float = 60.0) -> list[int]:
        """Submit up to `n` jobs, each after the last one's start. Return when each was sent (ns)."""
        sent: list[int] = self.ask(contestant, "latency", str(n), str(start), BENCH_PATIENCE=str(patience))[
            "sent"
        ]
        return sent

    def ask(self, contestant: Contestant, *words: str, **variables: str) -> Any:
        """Run a program. Return its output, parsed as JSON. Raises Failed."""
        return json.loads(self.say(contestant, *words, **variables).splitlines()[-1])

    def say(self, contestant: Contestant, *words: str, **variables: str) -> str:
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
        """Start a worker process, ended afterwards with its child processes. Number 2 has its own tally."""
        variables = {"BENCH_TALLY": str(self._tallies[number - 1])} | variables
        log = self._log(contestant, "work")
        with open(log, "wb") as errors:
            worker = Worker(self._spawn(contestant, ["work"], variables, stdout=errors, stderr=errors), log)
        try:
            yield worker
        finally:
            worker.stop()

    def wait(self, n: int, workers: Sequence[Worker], seconds: float = 120.0) -> int:
        """Wait until `n` jobs have started, or none for STALL s, or the time is up. Return how many. Raises Failed."""
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
    return {
        name: value for name, value in environ.items() if not name.startswith(("SUBLET_", "BENCH_", "PYTHON"))
    }


def members(leader: int) -> list[int]:
    """A process and its child processes, without those that have called `setsid`."""
    found = []
    for pid in _pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def tail(log: Path, lines: int = 6) -> str:
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
