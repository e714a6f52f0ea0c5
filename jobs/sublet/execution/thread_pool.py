"""Threads for tasks with `run="thread"`. A thread cannot be killed: a cancelled task continues, and its
thread counts as stuck.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from sublet.execution import stack
from sublet.execution.attempt import Attempt, Ended, Why, ending_of, ending_of_stop
from sublet.model import Completion

log = logging.getLogger(__name__)


class ThreadRun(asyncio.Future[Completion]):
    """One job in a thread, as a future of its outcome. Cancelled before its task begins, it never runs;
    later, its result is ignored.
    """

    def __init__(self, threads: "ThreadPool", attempt: Attempt, run: Callable[[], Completion]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.threads, self.attempt, self.run = threads, attempt, run
        self.begun = self.stuck = False
        self.thread = 0

    def cancel(self, msg: object = None) -> bool:
        """Cancel the job. If its task has begun, log a warning, and count its thread as stuck."""
        if msg in (Why.TIMED_OUT, Why.STALLED) and self.begun:
            self.attempt.stack = stack.of_thread(self.thread)
        cancelled = super().cancel(msg)
        if cancelled and self.begun:
            self.stuck = True
            self.threads.stuck += 1
            self.threads.grow()
            log.warning(
                "task %s of job %s runs in a thread, which cannot be killed: it keeps the thread until it returns; the worker ends when %d threads are kept",
                self.attempt.lease.task,
                self.attempt.lease.id,
                self.threads.most,
            )
        return cancelled


class ThreadPool:
    """Up to `most` daemon threads, started when needed. Up to `most` stuck ones are replaced; the attribute
    `lent` allows more.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.stuck = self.lent = 0
        self._queue: SimpleQueue[ThreadRun | None] = SimpleQueue()
        self._alive = self._wanted = 0

    def start(self, attempt: Attempt, run: Callable[[], Completion]) -> ThreadRun:
        """Run a function as soon as a thread is free. Return the future of its outcome; it raises Ended if the function
        raises."""
        call = ThreadRun(self, attempt, run)
        self._wanted += 1
        self._queue.put(call)
        self.grow()
        return call

    def grow(self) -> None:
        """Start a thread if there are more jobs than threads, and fewer threads than `most` + `lent` + stuck
        ones (at most `most`).
        """
        if self._wanted > self._alive and self._alive < self.most + self.lent + min(self.stuck, self.most):
            self._alive += 1
            threading.Thread(target=self._serve, name=f"sublet-task-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        while call := self._queue.get():
            # Set before the check: `cancel` checks after it has acted
            call.thread, call.begun = threading.get_ident(), True
            result: Completion | Ended = Ended(ending_of_stop(call.attempt.lease, None))
            if not call.cancelled():
                result = _result(call)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                call.get_loop().call_soon_threadsafe(self._returned, call, result)

    def _returned(self, call: ThreadRun, result: Completion | Ended) -> None:
        self._wanted -= 1
        self.stuck -= call.stuck
        if call.done():
            return
        if isinstance(result, Ended):
            call.set_exception(result)
        else:
            call.set_result(result)

    def close(self) -> None:
        """End each thread once it is free; a stuck one ends with the process, if not before."""
        for _ in range(self._alive):
            self._queue.put(None)


def _result(call: ThreadRun) -> Completion | Ended:
    try:
        return call.run()
    except BaseException as error:  # noqa: BLE001  # SystemExit, too, ends the attempt and not the worker
        return Ended(ending_of(call.attempt.lease, error, call.attempt.error_rules))
