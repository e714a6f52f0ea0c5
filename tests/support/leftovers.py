"""No test leaves a process behind: every process that a run starts inherits a mark of that run, and at its end nobody bears it.

A plugin for pytest. What is found is named, ended, and fails the run. Only this run's own are looked at: others may run beside
it, and a run inside a test (as those of the mutants) bears its own mark as well as the outer one's. Where a run is spread over
workers (tests/support/parallel_runs.py), each of them looks for its own, and the run that started them for those of a worker that is gone.
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
"""The environment's variable that bears the marks. Not SUBLET_…: tests take those away from what they start."""
LEFT = "left behind"
"""What a worker found, as it tells the run that started it."""
SECONDS = 10.0
"""How long a process may take to be gone that was told to go."""


class Leftovers:
    """Marks what a run starts, and looks for it when the run is over."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.found: list[str] = []
        os.environ[MARK] = " ".join(filter(None, [os.environ.get(MARK), self.mark]))

    def living(self) -> dict[int, str]:
        """The processes with this run's mark, and what they are; their environment shows what they were started with."""
        found = {}
        for home in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # gone meanwhile, or another user's
                if home.name != str(os.getpid()) and self.mark.encode() in (home / "environ").read_bytes():
                    words = (
                        (home / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                    )
                    found[int(home.name)] = words[:200]
        return found

    @pytest.hookimpl(trylast=True)  # after the fixtures of the session have ended theirs
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
