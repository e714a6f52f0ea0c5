"""Kills the process groups of a worker's programs and child processes when the worker itself is killed.

The kernel's death signal reaches a child, but not the child's own children. So a guard process reads a pipe from the
worker; when it closes, the guard kills the watched groups. Not covered: a process that leaves its group.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from contextvars import ContextVar

from sublet.source_tree import PACKAGE
from sublet.tasks.programs.process_guard_main import start_of

log = logging.getLogger(__name__)

BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from sublet.tasks.programs.process_guard_main import main; main(int(sys.argv[2]))"
HOME = str(PACKAGE.parent)
PATIENCE = 5.0
"""Seconds after which `aclose` kills a guard process that does not end."""


class ProcessGuard:
    """Starts and ends a worker's guard process; it runs from the first `watch` on. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    @property
    def pid(self) -> int | None:
        """The pid of the guard process; None if none runs."""
        return self._process.pid if self._process else None

    def watch(self, group: int) -> None:
        """Have this process group killed when this process dies. The group's leader must be a child whose
        exit was not read (`waitpid`).
        """
        self._groups[group] = start_of(group)
        self._send(f"+{group} {self._groups[group]}\n")

    def forget(self, group: int) -> None:
        """Stop watching a group."""
        if self._groups.pop(group, None) is not None:
            self._send(f"-{group}\n")

    def check(self) -> None:
        """Start a new guard process if the old one has died and groups are watched."""
        if self._process and self._process.poll() is not None:
            self._replace("it has died")

    async def aclose(self) -> None:
        """End the guard process, which kills the groups that are still watched."""
        process = self._detach()
        self._groups.clear()
        if process:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(process.wait, PATIENCE)
            finally:
                _kill(process)

    def _send(self, line: str) -> None:
        try:
            if self._process is None:
                self._start()
            else:
                os.write(self._pipe, line.encode())
        except BrokenPipeError:
            self._replace("it has died")
        except BlockingIOError:
            self._replace("it does not read its pipe")

    def _replace(self, why: str) -> None:
        old = self._detach()
        if old:
            _kill(old)
        if self._groups:
            log.warning(
                "starting again the guard process, which kills this worker's programs if the worker is killed: %s",
                why,
            )
            self._start()

    def _start(self) -> None:
        reading, self._pipe = os.pipe()
        command = [sys.executable, "-I", "-S", "-c", BOOT, HOME, str(os.getpid())]
        env = {name: value for name, value in os.environ.items() if name.startswith(("LD_", "DYLD_"))}
        try:
            self._process = subprocess.Popen(
                command, stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env, cwd="/",
                start_new_session=True,
            )  # fmt: skip
            os.write(
                self._pipe, "".join(f"+{group} {start}\n" for group, start in self._groups.items()).encode()
            )
            os.set_blocking(self._pipe, False)
        except OSError as error:
            failed = self._detach()
            if failed:
                _kill(failed)
            log.warning(
                "no guard process (%s): if this worker is killed, the programs that it runs may outlive it",
                error,
            )
        finally:
            os.close(reading)

    def _detach(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)


current: ContextVar[ProcessGuard | None] = ContextVar("sublet_process_guard", default=None)
"""The `ProcessGuard` of the worker that runs the current task; None outside of a worker."""
