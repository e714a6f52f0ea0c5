"""The job that a test's program runs for, and the processes that it leaves."""

import asyncio
import contextlib
import os
import time
from pathlib import Path

from sublet.model import Lease
from tests.support.processes import is_alive

LEASE = Lease("job-7", "4711.secret-token", 2, 0, "q", "t", None, b"{}", "crashed")


def bearing(marker):
    """The living processes with this mark in their arguments or environment, except this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            output = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if marker.encode() in output and int(folder.name) != os.getpid() and is_alive(int(folder.name)):
                found.append(int(folder.name))
    return found


async def soon(condition, what=""):
    """Wait for a condition while the loop goes on."""
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in time: {what or condition}"
        await asyncio.sleep(0.01)
    return found
