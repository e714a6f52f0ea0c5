"""Enters an app's middleware around the run of a task: all of it on the event loop, the plain kind elsewhere.

Nothing is entered, and nothing costs anything, where there are no hooks.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

from sublet.context import Context

Hook = Callable[[Context], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""A middleware: called with the context of an attempt; returns the context manager to enter around it."""


def entered(hooks: Sequence[Hook], context: Context) -> ExitStack:
    """Enter the plain hooks, the first one outermost; async ones are for tasks on the loop and are left out."""
    with ExitStack() as stack:
        for hook in hooks:
            manager: Any = hook(context)
            # `enter_context` refuses what is no context manager at all.
            if hasattr(manager, "__enter__") or not hasattr(manager, "__aenter__"):
                stack.enter_context(manager)
        return stack.pop_all()


async def entered_on_loop(hooks: Sequence[Hook], context: Context) -> AsyncExitStack:
    """Enter all hooks, the first one outermost."""
    async with AsyncExitStack() as stack:
        for hook in hooks:
            manager: Any = hook(context)
            if hasattr(manager, "__aenter__"):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        return stack.pop_all()
