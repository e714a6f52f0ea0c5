"""Run plain functions and plain middleware on the test's thread as if it had no event loop.

Django refuses calls under a running loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from sublet.app import App
from sublet.context import Context, current
from sublet.execution.steps.kept import PlainSteps
from sublet.model import Lease
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.steps.calls import step
from sublet.steps.chunks import Emission, emit
from sublet.tasks.middleware import Hook
from sublet.workflows.calling import call
from sublet.workflows.upstream import page

T = TypeVar("T")


@contextmanager
def _off_loop() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


def _one_call(call: Call[T]) -> Plan[T]:
    answer: T = yield call
    return answer


class _InlineSteps:
    def __init__(self, app: App) -> None:
        self._app = app

    def open_steps(self, lease: Lease) -> PlainSteps:
        """Return steps that use the app's synchronous client."""
        store = self._app.sync.store
        base = store.operations.base_of_job(lease.id)
        plans: dict[str, Callable[[Any], Plan[Any]]] = {
            "step": lambda steps: _one_call(step(base, lease, steps)),
            "emit": lambda chunk: _one_call(emit(base, lease, Emission(None, [chunk]))),
            "call": lambda called: call(store.operations, lease, called),
            "upstream": lambda start: page(base, lease, start),
        }
        return PlainSteps(
            lease,
            lambda what, argument: store.follow_existing(plans[what](argument)),
            store.settings.storage,
        )


def as_coroutine(function: Callable[..., Any], app: App) -> Callable[..., Any]:
    """Return a coroutine function that calls a plain function of the app on the test's thread."""

    async def run_here(*args: Any, **kwargs: Any) -> Any:
        context = current.get()
        if context is not None:
            context.open_with(_InlineSteps(app))
        with _off_loop():
            return function(*args, **kwargs)

    return run_here


def plain_hooks(hooks: list[Hook]) -> list[Hook]:
    """Return hooks that run these as if without an event loop. Context managers that are only async are skipped, as
    in child processes.
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
