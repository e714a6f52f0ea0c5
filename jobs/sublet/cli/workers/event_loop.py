"""Event loop and garbage collector of a long-running command."""

import asyncio
import gc
import importlib
from collections.abc import Callable

YOUNG = 5_000
"""Allocations between two collections. A hundred jobs at a time are 1,500 live objects: Python's default of
700 would examine each twice."""


def calm_collector() -> None:
    """Collect garbage less often (see YOUNG), and never examine the objects that exist now."""
    gc.freeze()
    gc.set_threshold(YOUNG)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop if it is installed, else None."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return found
