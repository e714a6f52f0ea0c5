"""Where tasks run: async functions on the worker's loop, plain ones in child processes or, by choice, in threads."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from sublet.app import Task
from sublet.context import current
from sublet.errors import Invalid
from sublet.execution.attempt import Attempt, Ended, UnknownTask, ending_of, unfit
from sublet.execution.child_process import LEAVE_SECONDS
from sublet.execution.process_pool import NO_LIMITS, Children, Limits
from sublet.execution.thread_pool import Threads
from sublet.model import Completion
from sublet.tasks.middleware import entered, entered_on_loop
from sublet.tasks.process_guard import Keeper
from sublet.tasks.process_guard import current as keeping

__all__ = ["NO_LIMITS", "Limits", "Runner"]


class Runner:
    """Runs the tasks of attempts.

    Raises Invalid at once for a plain function that a child process could not find, and for limits that cannot be kept.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        *,
        slots: int,
        processes: int,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self._tasks = tasks
        self.keeper = Keeper()
        """Ends the process groups that are left when this process is killed. Starts with the first child."""
        plain = [task for task in tasks.values() if task.run == "process"]
        self._children = Children(plain, processes, limits, self.keeper)
        self._threads = Threads(slots)

    @property
    def stuck(self) -> int:
        """Threads that still run a task whose attempt was ended: each keeps a slot from being free."""
        return self._threads.stuck

    @property
    def waiting(self) -> int:
        """Jobs that wait for a child process, for every one is busy or still on its way."""
        return self._children.waiting

    @property
    def ahead(self) -> int:
        """How many plain jobs may be taken beyond the free children, for they would wait for a moment only."""
        return self._children.ahead

    def start(self, attempt: Attempt) -> "asyncio.Future[Completion]":
        """Run the task of an attempt where it belongs.

        Whoever cancels the future ends the task; a child is killed, a thread cannot be. Its exception is whatever the task
        came to: its own, Ended, Crashed, or UnknownTask if this worker has no such task or the payload does not fit it.
        """
        loop = asyncio.get_running_loop()
        task = self._tasks.get(attempt.lease.task)
        if task is None:
            unknown: asyncio.Future[Completion] = loop.create_future()
            unknown.set_exception(UnknownTask(f"this worker has no task {attempt.lease.task}"))
            return unknown
        if task.run == "process":
            return self._children.start(attempt)
        if task.run == "thread":
            return self._threads.start(attempt, partial(_call, task, attempt))
        if task.run == "command":
            keeping.set(self.keeper)
        return loop.create_task(_perform(task, attempt))

    async def aclose(self, patience: float = LEAVE_SECONDS) -> None:
        """End the children, within so many seconds, and the free threads. A stuck one ends with the process."""
        self._threads.close()
        await self._children.aclose(patience)
        await self.keeper.aclose()


async def _perform(task: Task[..., Any], attempt: Attempt) -> Completion:
    """Bind the arguments, run an async function, encode its result. Raises whatever the task does."""
    arguments = _bind(task, attempt)
    context = attempt.context
    current.set(context)
    first = (context,) if task.arguments.takes_context else ()
    try:
        if not task.app.hooks:
            return Completion(
                attempt.lease, task.arguments.dump_result(await task.function(*first, **arguments))
            )
        # Inside the middleware: a result that is refused is an error to it, too.
        async with await entered_on_loop(task.app.hooks, context):
            return Completion(
                attempt.lease, task.arguments.dump_result(await task.function(*first, **arguments))
            )
        return Completion(
            attempt.lease, task.arguments.dump_result(None)
        )  # a hook has swallowed what the task raised
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would let these end the whole worker
        raise Ended(ending_of(attempt.lease, error)) from None
    finally:
        context.flush()


def _call(task: Task[..., Any], attempt: Attempt) -> Completion:
    """The same for a plain function, in a thread."""
    arguments = _bind(task, attempt)
    context = attempt.context
    token = current.set(context)
    first = (context,) if task.arguments.takes_context else ()
    try:
        if not task.app.hooks:
            return Completion(attempt.lease, task.arguments.dump_result(task.function(*first, **arguments)))
        with entered(task.app.hooks, context):
            return Completion(attempt.lease, task.arguments.dump_result(task.function(*first, **arguments)))
        return Completion(attempt.lease, task.arguments.dump_result(None))
    finally:
        current.reset(token)
        context.flush()


def _bind(task: Task[..., Any], attempt: Attempt) -> dict[str, Any]:
    try:
        return task.arguments.load(attempt.lease.payload)
    except Invalid as error:
        raise unfit(error) from None
