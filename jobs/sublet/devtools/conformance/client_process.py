"""The client under test, run as a user runs it: `CMD submit TASK JSON` and `CMD work`."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from sublet.errors import Invalid
from sublet.tasks.programs.bound_process import spawn_bound

SUBMIT_SECONDS = 20.0
POLL = 0.05
LAST_WORDS = 400


class Client:
    """The command line of the client under test. Raises Invalid if its program is missing or not executable."""

    def __init__(self, command: Sequence[str]) -> None:
        program = shutil.which(command[0])
        if program is None:
            raise Invalid(
                f"no executable program {command[0]!r} on PATH: give its path, make it executable, or put the interpreter first, as in `bash {command[0]}`"
            )
        self.words = [os.path.abspath(program), *command[1:]]

    async def start(self, words: Sequence[str], environment: Mapping[str, str]) -> "Process":
        """Start the client with these arguments and additional environment variables; the caller ends the
        process.
        """
        return await asyncio.to_thread(Process, [*self.words, *words], {**os.environ, **environment})


class Process:
    """One process of the client, in its own session."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  they stay open
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  see above
        self._process: subprocess.Popen[bytes] = spawn_bound(
            command, stdout=self._out, stderr=self._err, env=dict(environment)
        )

    @property
    def exit(self) -> int | None:
        """The process's exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    async def wait(self, seconds: float) -> int | None:
        """Wait for the process's end. Return its exit code; None if it still runs after the timeout."""
        for _ in range(max(1, round(seconds / POLL))):
            if self.exit is not None:
                break
            await asyncio.sleep(POLL)
        return self.exit

    def ask_to_stop(self) -> None:
        """Send SIGTERM to this process only."""
        self._process.terminate()

    def left_behind(self) -> list[int]:
        """Return ids of other live processes in its session. Empty except on Linux."""
        return [pid for pid in _session(self._process.pid) if pid != self._process.pid]

    def end(self) -> None:
        """Kill the process and its session, wait for its end, drop the output."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in self.left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        self._out.close()
        self._err.close()

    def said(self) -> str:
        """Return the output on stdout so far."""
        return _read(self._out)

    def words(self) -> str:
        """Return the end of stderr, or else stdout, on one line, to append to a message."""
        tail = " ".join((_read(self._err).strip() or self.said().strip()).split())
        return (
            f": …{tail[-LAST_WORDS:]}"
            if len(tail) > LAST_WORDS
            else f": {tail}"
            if tail
            else ", without any output"
        )


def _read(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def _session(leader: int) -> list[int]:
    if sys.platform != "linux":
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            state, _, _, session = path.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(path.parent.name))
    return found
