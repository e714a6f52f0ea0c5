"""What becomes of a worker's programs and children when it is killed: a keeper process ends their groups.

A process group outlives whoever started it. The kernel's death signal reaches a child, not what the child has started, and no
signal handler runs in a worker that dies of SIGKILL. So a small process beside the worker holds the end of a pipe: it is told
of each group (`watch`) and of its end (`forget`), and when the pipe closes it kills those that are left.

What remains: a process that leaves its group (`setsid`), and a worker whose keeper was killed too, after the last `check`.
"""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from contextvars import ContextVar

from sublet.source_tree import PACKAGE
from sublet.tasks.process_guard_main import start_of

log = logging.getLogger(__name__)

BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from sublet.tasks.process_guard_main import main; main(int(sys.argv[2]))"
HOME = str(PACKAGE.parent)
PATIENCE = 5.0
"""Seconds that a keeper may take to exit once its pipe is closed."""


class Keeper:
    """Watches over process groups; starts its process with the first one. Belongs to no event loop; one thread at a time."""

    def __init__(self) -> None:
        self._groups: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    @property
    def pid(self) -> int | None:
        """The keeper process, if there is one."""
        return self._process.pid if self._process else None

    def watch(self, group: int) -> None:
        """Have this group killed should we die before `forget`. Its leader must be a child of ours that was not waited for."""
        self._groups[group] = start_of(group)
        self._say(f"+{group} {self._groups[group]}\n")

    def forget(self, group: int) -> None:
        """The group has ended, or is somebody else's care."""
        if self._groups.pop(group, None) is not None:
            self._say(f"-{group}\n")

    def check(self) -> None:
        """Start another keeper if ours has died while there is something to watch. Cheap: call it with every heartbeat."""
        if self._process and self._process.poll() is not None:
            self._replace("it has died")

    async def aclose(self) -> None:
        """End the keeper process; what is still watched is killed. It starts again with the next `watch`."""
        process = self._let_go()
        self._groups.clear()
        if process:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(process.wait, PATIENCE)
            finally:
                _see_off(process)

    def _say(self, line: str) -> None:
        """Tell the keeper; the pipe never blocks us, and a line goes through whole or not at all."""
        try:
            if self._process is None:
                self._start()
            else:
                os.write(self._pipe, line.encode())
        except BrokenPipeError:
            self._replace("it has died")
        except BlockingIOError:
            self._replace("it does not listen")

    def _replace(self, why: str) -> None:
        old = self._let_go()
        if old:
            _see_off(old)
        if self._groups:
            log.warning("the keeper of this worker's process groups is started again: %s", why)
            self._start()

    def _start(self) -> None:
        """Start a keeper and tell it of all groups. Without one we go on: a warning says what that means."""
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
            failed = self._let_go()
            if failed:
                _see_off(failed)
            log.warning(
                "no keeper (%s): if this worker is killed, the programs that it runs may outlive it", error
            )
        finally:
            os.close(reading)

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        process, self._process = self._process, None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        return process


def _see_off(process: subprocess.Popen[bytes]) -> None:
    """Kill it, which does nothing if it was waited for, and leave no zombie."""
    process.kill()
    with contextlib.suppress(
        subprocess.TimeoutExpired
    ):  # the kernel holds it: nothing that waiting longer would help
        process.wait(PATIENCE)


current: ContextVar[Keeper | None] = ContextVar("sublet_keeper", default=None)
"""The keeper of the worker that runs this task; a program that is run outside of a worker starts one of its own."""
