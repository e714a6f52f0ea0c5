"""Event loop and garbage collector of a long-running command."""

import asyncio
import gc
import importlib
from collections.abc import Callable

YOUNG = 5_000
"""Objects made between two runs of the garbage collector; Python's default is too few."""


def calm_collector() -> None:
    """Let the garbage collector run less often, and skip the objects that exist now."""
    gc.freeze()
    gc.set_threshold(YOUNG)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the loop factory of uvloop if it is installed, else None."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return found
