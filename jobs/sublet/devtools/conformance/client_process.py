"""The client under examination, as a user runs it: `CMD submit TASK JSON` and `CMD work`, each a process that is always ended."""

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
from sublet.tasks.bound_process import spawn_bound

SUBMIT_SECONDS = 20.0
"""How long one `submit` may take."""
POLL = 0.05
"""Seconds between two looks at a process."""
LAST_WORDS = 400
"""Characters of a process's output that are shown."""


class Client:
    """A command line to be examined. Raises Invalid for a program that is not there."""

    def __init__(self, command: Sequence[str]) -> None:
        program = shutil.which(command[0])
        if program is None:
            raise Invalid(
                f"there is no program {command[0]!r} to examine: give its path, or what runs it first, as in `bash {command[0]}`"
            )
        self.words = [os.path.abspath(program), *command[1:]]

    async def start(self, words: Sequence[str], environment: Mapping[str, str]) -> "Process":
        """Start it with some words behind it."""
        return await asyncio.to_thread(Process, [*self.words, *words], {**os.environ, **environment})


class Process:
    """One run of the client, alone in a session of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  they live as long as the process
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  see above
        self._process: subprocess.Popen[bytes] = spawn_bound(
            command, stdout=self._out, stderr=self._err, env=dict(environment)
        )

    @property
    def exit(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.poll()

    async def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it is still there after so long."""
        for _ in range(max(1, round(seconds / POLL))):
            if self.exit is not None:
                break
            await asyncio.sleep(POLL)
        return self.exit

    def ask_to_stop(self) -> None:
        """SIGTERM, to it alone."""
        self._process.terminate()

    def left_behind(self) -> list[int]:
        """The processes of its session that are still there, itself aside. Only Linux tells; elsewhere none are known."""
        return [pid for pid in _session(self._process.pid) if pid != self._process.pid]

    def end(self) -> None:
        """See it and its children gone, whatever it takes."""
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
        """What it has written to stdout."""
        return _read(self._out)

    def words(self) -> str:
        """The last of what it has said, on one line, for a message."""
        tail = " ".join((_read(self._err).strip() or self.said().strip()).split())
        return (
            f": …{tail[-LAST_WORDS:]}"
            if len(tail) > LAST_WORDS
            else f": {tail}"
            if tail
            else " without a word"
        )


def _read(file: IO[bytes]) -> str:
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    if sys.platform != "linux":
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it went while we looked
            state, _, _, session = path.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(path.parent.name))
    return found
