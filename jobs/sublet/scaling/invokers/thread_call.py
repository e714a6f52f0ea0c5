"""Run blocking calls in threads that do not delay the end of the process."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a new daemon thread; return its result, or raise its exception. If the caller is
    cancelled, the function continues.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001  it is raised in the caller
            settle = _settling(done, error=error)
        else:
            settle = _settling(done, result)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="sublet-aside", daemon=True).start()
    return await done


def _settling(
    done: "asyncio.Future[T]", result: T | None = None, error: BaseException | None = None
) -> Callable[[], None]:
    def settle() -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    return settle
