"""Threads for the tasks that ask for one. A thread cannot be killed: what is cancelled while it runs runs on, and is counted.

Not `concurrent.futures`: the interpreter waits for its threads at exit, so one stuck task would keep a worker from ever going.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from sublet.execution.attempt import Attempt, Ended, ending_of, ending_of_stop
from sublet.model import Completion

log = logging.getLogger(__name__)


class Call(asyncio.Future[Completion]):
    """The run of a job in a thread. Cancelled before it begins it never does; afterwards its result counts no more."""

    def __init__(self, threads: "Threads", attempt: Attempt, run: Callable[[], Completion]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.threads, self.attempt, self.run = threads, attempt, run
        self.begun = self.stuck = False

    def cancel(self, msg: object = None) -> bool:
        """Let go of the task; if it runs, say that it cannot be ended."""
        cancelled = super().cancel(msg)
        if cancelled and self.begun:
            self.stuck = True
            self.threads.stuck += 1
            self.threads.grow()
            log.warning(
                "task %s of job %s runs in a thread, which cannot be killed: it keeps one of %d threads until it returns",
                self.attempt.lease.task,
                self.attempt.lease.id,
                self.threads.most,
            )
        return cancelled


class Threads:
    """Up to `most` daemon threads that can be used, started as they are needed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.stuck = 0
        """Threads that still run a task whose attempt was ended."""
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._alive = self._wanted = 0

    def start(self, attempt: Attempt, run: Callable[[], Completion]) -> Call:
        """Run it as soon as a thread is free. The future raises Ended with whatever it came to, if that is no result."""
        call = Call(self, attempt, run)
        self._wanted += 1
        self._queue.put(call)
        self.grow()
        return call

    def grow(self) -> None:
        """Start a thread if one is wanted: in the place of each that is stuck there may be another, `most` of them at most."""
        if self._wanted > self._alive and self._alive < self.most + min(self.stuck, self.most):
            self._alive += 1
            threading.Thread(target=self._serve, name=f"sublet-task-{self._alive}", daemon=True).start()

    def _serve(self) -> None:
        while call := self._queue.get():
            call.begun = True  # before the look, as `cancel` looks after its act: one of them sees the other
            result: Completion | Ended = Ended(ending_of_stop(call.attempt.lease, None))
            if not call.cancelled():
                result = _result(call)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to hear
                call.get_loop().call_soon_threadsafe(self._returned, call, result)

    def _returned(self, call: Call, result: Completion | Ended) -> None:
        self._wanted -= 1
        self.stuck -= call.stuck
        if call.done():
            return
        if isinstance(result, Ended):
            call.set_exception(result)
        else:
            call.set_result(result)

    def close(self) -> None:
        """Let the threads end that are free; one that is stuck ends with the process."""
        for _ in range(self._alive):
            self._queue.put(None)


def _result(call: Call) -> Completion | Ended:
    try:
        return call.run()
    except BaseException as error:  # noqa: BLE001  # whatever a task raises, SystemExit included, is its ending and not the worker's
        return Ended(ending_of(call.attempt.lease, error))
