"""Event loop and garbage collector of a command that runs for long."""

import asyncio
import gc
import importlib
from collections.abc import Callable

YOUNG = 5_000
"""Allocations between two runs of the garbage collector. A hundred jobs at a time are 1,500 live objects; with Python's default of
700, the collector would examine each of them twice.
"""


def calm_collector() -> None:
    """Let the garbage collector run seldom, and never examine the program itself again."""
    gc.freeze()
    gc.set_threshold(YOUNG)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop if it is installed, else None."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return found
