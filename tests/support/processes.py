"""Processes through Linux's /proc, and waiting for conditions."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECONDS = 30.0
"""How long a test waits for a condition, in seconds: long enough for a busy machine, since nothing is
measured by it."""
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc")


def until(condition: Callable[[], Any], what: Any = "", seconds: float = SECONDS) -> Any:
    """Wait until a condition is true and return its value; fails after `seconds`, with `what` or its result."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, (
            f"not in {seconds:g} s: {what() if callable(what) else what or condition}"
        )
        time.sleep(0.005)
    return found


def plain_environment(*more: str) -> dict[str, str]:
    """This process's environment without what configures Sublet, and without names that begin with one of `more`."""
    configures = ("SUBLET_", "REDIS_", *more)
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(configures) and name != "PORT"
    }


def is_alive(pid: int) -> bool:
    """Whether a process exists. A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text().rpartition(") ")[2].split()[:2]
            if int(parent) == pid and state not in "ZX":
                found.append(int(stat.parent.name))
    return found
