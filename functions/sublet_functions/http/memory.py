"""Limits that depend on the machine's or container's memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

MIB = 1024 * 1024
CGROUP = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def available_memory(files: Iterable[Path] = CGROUP) -> int:
    """Return the container's memory limit or the machine's memory, the smaller one, in bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in files:
        try:
            memory = min(memory, int(file.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return memory


@cache
def body_budget() -> int:
    """Return the limit in bytes of bodies being received, and also of large bodies waiting to be parsed: an
    eighth of the memory, 16 to 256 MiB.
    """
    return budget_of(available_memory())


def budget_of(memory: int) -> int:
    """Return an eighth of `memory`, but 16 to 256 MiB."""
    return min(256 * MIB, max(16 * MIB, memory // 8))


def share_of(budget: int) -> int:
    """Return how much of a budget (bytes) one token may use: a quarter, or 16 MiB if that is more."""
    return max(16 * MIB, budget // 4)
