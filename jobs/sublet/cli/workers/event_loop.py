"""How a command that works for long runs: on which event loop, and how often garbage is looked for."""

import asyncio
import gc
import importlib
from collections.abc import Callable

YOUNG = 5_000
"""Objects that may be made before the collector looks which of them are garbage: a hundred jobs at a time are 1,500 that are not,
and Python's own 700 would have it look at each of them twice."""


def calm_collector() -> None:
    """Have the garbage collector look at what jobs leave behind, seldom, and never again at the program itself."""
    gc.freeze()
    gc.set_threshold(YOUNG)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of uvloop, where somebody has installed it."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return found
