"""Where tasks run: async functions on the worker's loop, plain ones in child processes or, by choice, in threads."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from jobs.attempt import Attempt, Ended, UnknownTask, ending_of
from jobs.children import Children
from jobs.errors import Invalid
from jobs.keeper import Keeper, current
from jobs.model import Completion, Lease
from jobs.pipe import address
from jobs.registry import Task


class Limits(NamedTuple):
    """What a child process may use: bytes of memory, and jobs before another takes its place. None for no limit."""

    memory: int | None = None
    jobs: int | None = None


NO_LIMITS = Limits()


class Runner:
    """Runs the task of an attempt. Raises Invalid at once for a plain function that a child process could not find."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], *, slots: int, processes: int, limits: Limits) -> None:
        self.stuck = 0
        self._tasks = tasks
        self._children = Children()
        self.keeper = Keeper()
        self._threads = ThreadPoolExecutor(slots, "sublet-task")
        for task in tasks.values():
            if task.run == "process":
                address(task)

    def start(self, attempt: Attempt) -> "asyncio.Future[Completion]":
        """Begin."""
        return asyncio.get_running_loop().create_task(self.perform(attempt))

    async def perform(self, attempt: Attempt) -> Completion:
        """Find the task, bind its arguments, run it where it belongs, encode its result. Raises whatever the task does."""
        lease = attempt.lease
        task = self._task(lease)
        if task.run == "process":
            return Completion(lease, await self._children.run(task, lease, attempt.tell))
        arguments = _bind(task, lease.payload)
        context = (attempt.context,) if task.arguments.takes_context else ()
        current.set(self.keeper)
        try:
            if task.run in ("loop", "command"):
                value = await task.function(*context, **arguments)
            else:
                call = partial(task.function, *context, **arguments)
                value = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (SystemExit, KeyboardInterrupt) as error:  # asyncio would let these end the whole worker
            raise Ended(ending_of(lease, error)) from None
        return Completion(lease, task.arguments.dump_result(value))

    def _task(self, lease: Lease) -> Task[..., Any]:
        try:
            return self._tasks[lease.task]
        except KeyError:
            raise UnknownTask(f"this worker has no task {lease.task}") from None

    async def aclose(self) -> None:
        """End the idle children. A task in a thread cannot be killed: the process waits for it when it exits."""
        await self._children.aclose()
        await self.keeper.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _bind(task: Task[..., Any], payload: bytes) -> dict[str, Any]:
    try:
        return task.arguments.load(payload)
    except Invalid as error:
        raise UnknownTask(str(error)) from None
