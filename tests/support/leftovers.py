"""No test leaves a process behind. Every process that a run starts inherits a mark of that run; at the end of
the run none may have it.

A plugin for pytest. A process that is found is named and ended, and the run fails. A run inside a test has its
own mark as well as the outer one. In a parallel run each worker looks for its own processes, and the controller
for those of a dead worker.
"""

import contextlib
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

MARK = "RUN_OF_THE_TESTS"
"""The environment variable with the marks. Its name does not begin with SUBLET_: tests remove those from the
processes they start."""
LEFT = "left behind"
"""The key under which a worker reports processes to the controller."""
SECONDS = 10.0
"""How long a process may take to end after it was told to."""


class Leftovers:
    """Marks the processes that a run starts, and looks for them when the run is over."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.found: list[str] = []
        os.environ[MARK] = " ".join(filter(None, [os.environ.get(MARK), self.mark]))

    def living(self) -> dict[int, str]:
        """The running processes with this run's mark, and their command lines."""
        found = {}
        for home in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile, or owned by another user
                if home.name != str(os.getpid()) and self.mark.encode() in (home / "environ").read_bytes():
                    words = (
                        (home / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    )
                    found[int(home.name)] = words[:200]
        return found

    @pytest.hookimpl(trylast=True)  # after the session's fixtures have ended their processes
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if sys.platform != "linux":
            return
        until = time.monotonic() + SECONDS
        while (left := self.living()) and time.monotonic() < until:
            time.sleep(0.01)
        self.found += [f"{pid} {words}" for pid, words in left.items()]
        for pid in left:
            if pid in self.living():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[LEFT] = self.found
        elif self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.found += getattr(node, "workeroutput", {}).get(LEFT, [])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.found:
            terminalreporter.section("left behind", red=True)
            terminalreporter.write_line("the tests left these processes behind (they were ended now):")
            for line in self.found:
                terminalreporter.write_line(f"  {line}")
