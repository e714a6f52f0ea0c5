"""Run attempts: async functions and programs on the worker's event loop, plain functions in child processes
or threads.
"""

import asyncio
import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from sublet.app import Task
from sublet.context import current
from sublet.errors import Invalid
from sublet.execution.attempt import STARVED, Attempt, Ended, UnknownTask, ending_of, unfit
from sublet.execution.child_process import LEAVE_SECONDS, ChildRun
from sublet.execution.following import completion_of
from sublet.execution.large import read_payload
from sublet.execution.process_pool import NO_LIMITS, Limits, ProcessPool
from sublet.execution.thread_pool import ThreadPool
from sublet.large_payloads.storage import Storage, is_reference
from sublet.model import Completion
from sublet.options import PAYLOAD_MAX
from sublet.tasks.middleware import entered, entered_on_loop
from sublet.tasks.programs.process_guard import ProcessGuard
from sublet.tasks.programs.process_guard import current as current_guard

__all__ = ["NO_LIMITS", "Limits", "Runner"]


class Runner:
    """Runs a worker's tasks, plain ones in `processes` child processes or (`run="thread"`) in `slots` threads; in
    more while `lend` allows it.

    Raises Invalid for a plain function that its child process cannot import, and for invalid limits.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        *,
        slots: int,
        processes: int,
        limits: Limits = NO_LIMITS,
        storage: Storage | None = None,
    ) -> None:
        self._tasks, self._storage = tasks, storage
        self.guard = ProcessGuard()
        plain = [task for task in tasks.values() if task.run == "process"]
        self._children = ProcessPool(plain, processes, limits, self.guard, storage)
        self._threads = ThreadPool(slots)

    @property
    def stuck(self) -> int:
        """How many threads still run a task whose attempt has ended."""
        return self._threads.stuck

    @property
    def pids(self) -> list[int]:
        """The process ids of the children, also of ending ones."""
        return self._children.pids

    @property
    def waiting(self) -> int:
        """How many jobs wait for a free child process."""
        return self._children.waiting

    @property
    def ahead(self) -> int:
        """How many jobs may be claimed while no child process is free for them; above 0 only while jobs are
        short.
        """
        return self._children.ahead

    def lend(self, slots: int, processes: int) -> None:
        """Allow `slots` threads and `processes` children above the limits, because as many tasks wait for
        other jobs.
        """
        self._threads.lent = slots
        self._children.lend(processes)

    @staticmethod
    def log_starved(attempt: Attempt) -> None:
        """Warn in an attempt's log that all slots, or children, of this worker wait for other jobs."""
        if isinstance(attempt.running, ChildRun):
            attempt.running.log_starved()
        else:
            attempt.context.log(f"warning {STARVED}")

    def start(self, attempt: Attempt) -> "asyncio.Future[Completion]":
        """Start an attempt's task. Cancelling the returned future ends the task, but not one in a thread.

        The future raises Ended (another outcome than a result), Crashed, UnknownTask, or an async task's own
        exception.
        """
        loop = asyncio.get_running_loop()
        task = self._tasks.get(attempt.lease.task)
        if task is None:
            unknown: asyncio.Future[Completion] = loop.create_future()
            unknown.set_exception(UnknownTask(f"this worker has no task {attempt.lease.task}"))
            return unknown
        attempt.error_rules = task.error_rules
        if task.run == "process":
            return self._children.start(attempt)
        storage = self._storage
        if storage is not None:
            attempt.reports.storage = storage
        if task.run == "thread":
            attempt.reports.thread_of = loop
            if storage is None:
                return self._threads.start(attempt, partial(_call, task, attempt, None))
            return self._threads.start(attempt, partial(_call_and_store, task, attempt, storage))
        if task.run == "command":
            current_guard.set(self.guard)
        if storage is None:
            return loop.create_task(_perform(task, attempt, None))
        return loop.create_task(_perform_and_store(task, attempt, storage))

    async def aclose(self, patience: float = LEAVE_SECONDS) -> None:
        """End the child processes (idle ones have `patience` seconds, at most 2), the free threads, and
        programs of tasks.
        """
        self._threads.close()
        await self._children.aclose(patience)
        await self.guard.aclose()


async def _perform_and_store(task: Task[..., Any], attempt: Attempt, storage: Storage) -> Completion:
    done = await _perform(task, attempt, storage)
    if not storage.takes(done.result):
        return done
    return done._replace(result=await asyncio.to_thread(storage.put, done.lease.id, done.result))


async def _perform(task: Task[..., Any], attempt: Attempt, storage: Storage | None) -> Completion:
    payload = attempt.lease.payload
    if is_reference(payload):
        payload = await asyncio.to_thread(read_payload, storage, attempt.lease)
    arguments, most = _bind(task, attempt, payload), PAYLOAD_MAX if storage is None else math.inf
    context = attempt.context
    current.set(context)
    first = (context,) if task.arguments.takes_context else ()
    try:
        if not task.app.hooks:
            return completion_of(
                attempt.lease, task.arguments, await task.function(*first, **arguments), most
            )
        # The middleware gets an invalid result as an error, too
        async with await entered_on_loop(task.app.hooks, context):
            return completion_of(
                attempt.lease, task.arguments, await task.function(*first, **arguments), most
            )
        # A middleware swallowed the exception
        return Completion(attempt.lease, task.arguments.dump_result(None, most))
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would let these end the worker
        raise Ended(ending_of(attempt.lease, error, task.error_rules)) from None
    finally:
        context.flush()


def _call_and_store(task: Task[..., Any], attempt: Attempt, storage: Storage) -> Completion:
    done = _call(task, attempt, storage)
    if not storage.takes(done.result):
        return done
    return done._replace(result=storage.put(done.lease.id, done.result))


def _call(task: Task[..., Any], attempt: Attempt, storage: Storage | None) -> Completion:
    payload = attempt.lease.payload
    if is_reference(payload):
        payload = read_payload(storage, attempt.lease)
    arguments, most = _bind(task, attempt, payload), PAYLOAD_MAX if storage is None else math.inf
    context = attempt.context
    token = current.set(context)
    first = (context,) if task.arguments.takes_context else ()
    try:
        if not task.app.hooks:
            return completion_of(attempt.lease, task.arguments, task.function(*first, **arguments), most)
        with entered(task.app.hooks, context):
            return completion_of(attempt.lease, task.arguments, task.function(*first, **arguments), most)
        return Completion(attempt.lease, task.arguments.dump_result(None, most))
    finally:
        current.reset(token)
        context.flush()


def _bind(task: Task[..., Any], attempt: Attempt, payload: bytes) -> dict[str, Any]:
    try:
        arguments = task.arguments.load(payload)
    except Invalid as error:
        raise unfit(error) from None
    attempt.context.arguments = MappingProxyType(arguments)
    return arguments
