"""Slow calls that know nothing of event loops, in threads that keep nobody."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def aside(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, and give what it gives, or raise what it raises.

    Who stops waiting leaves it to itself: unlike a thread of an executor, it does not keep the process from its end.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            say = _saying(done, error=error)
        else:
            say = _saying(done, result)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(say)

    threading.Thread(target=run, name="sublet-aside", daemon=True).start()
    return await done


def _saying(
    done: "asyncio.Future[T]", result: T | None = None, error: BaseException | None = None
) -> Callable[[], None]:
    def say() -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # what the function gave

    return say
