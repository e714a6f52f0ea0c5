"""Enter an app's middleware around an attempt."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import Any

from sublet.context import Context

Hook = Callable[[Context], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Returns the context manager in which a task is called."""


def entered(hooks: Sequence[Hook], context: Context) -> ExitStack:
    """Enter the plain context managers of the middleware, the first hook's outermost; skip async ones. The
    caller closes the returned stack.
    """
    with ExitStack() as stack:
        for hook in hooks:
            manager: Any = hook(context)
            if hasattr(manager, "__enter__") or not hasattr(manager, "__aenter__"):
                stack.enter_context(manager)
        return stack.pop_all()


async def entered_on_loop(hooks: Sequence[Hook], context: Context) -> AsyncExitStack:
    """Enter all context managers of the middleware, the first hook's outermost. The caller closes the
    returned stack.
    """
    async with AsyncExitStack() as stack:
        for hook in hooks:
            manager: Any = hook(context)
            if hasattr(manager, "__aenter__"):
                await stack.enter_async_context(manager)
            else:
                stack.enter_context(manager)
        return stack.pop_all()
