"""Event loop and garbage collector of a long command."""

import asyncio
import gc
import importlib
from collections.abc import Callable

YOUNG = 5_000
"""Allocations between two collections. A hundred jobs at a time are 1,500 live objects; with Python's default
of 700, each would be examined twice.
"""


def calm_collector() -> None:
    """Collect garbage seldom, and never examine the program again."""
    gc.freeze()
    gc.set_threshold(YOUNG)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop if it is installed, else None."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return found
