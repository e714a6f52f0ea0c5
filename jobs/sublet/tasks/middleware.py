"""Enters an app's middleware around a task."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

from sublet.context import Context

Hook = Callable[[Context], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Returns the context manager to enter around an attempt."""


def entered(hooks: Sequence[Hook], context: Context) -> ExitStack:
    """Enter the plain middleware, the first one outermost. Skips async middleware."""
    with ExitStack() as stack:
        for hook in hooks:
            manager: Any = hook(context)
            if hasattr(manager, "__enter__") or not hasattr(manager, "__aenter__"):
                stack.enter_context(manager)
        return stack.pop_all()


async def entered_on_loop(hooks: Sequence[Hook], context: Context) -> AsyncExitStack:
    """Enter all middleware, the first one outermost."""
    async with AsyncExitStack() as stack:
        for hook in hooks:
            manager: Any = hook(context)
            if hasattr(manager, "__aenter__"):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        return stack.pop_all()
