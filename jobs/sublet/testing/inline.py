"""Run plain functions and plain middleware on the test's thread as if it had no event loop.

Some libraries, such as Django's models, refuse plain calls under a running loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sublet.context import Context
from sublet.tasks.middleware import Hook


@contextmanager
def _off_loop() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that calls a plain function on the thread of the test."""

    async def run_here(*args: Any, **kwargs: Any) -> Any:
        with _off_loop():
            return function(*args, **kwargs)

    return run_here


def plain_hooks(hooks: list[Hook]) -> list[Hook]:
    """Return the middleware without async context managers, which tasks in child processes and threads do not
    enter.
    """
    return [_plain_hook(hook) for hook in hooks]


def _plain_hook(hook: Hook) -> Hook:
    def enter(context: Context) -> AbstractContextManager[Any]:
        with _off_loop():
            manager: Any = hook(context)
        if hasattr(manager, "__aenter__") and not hasattr(manager, "__enter__"):
            return nullcontext()
        return _OffLoop(manager)

    return enter


class _OffLoop(AbstractContextManager[Any]):
    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def __enter__(self) -> Any:
        with _off_loop():
            return self._manager.__enter__()

    def __exit__(self, *raised: Any) -> Any:
        with _off_loop():
            return self._manager.__exit__(*raised)
