"""Child processes for plain functions, killed when a task must end.

The death of a child fails only the job that it runs.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sublet.errors import Invalid
from sublet.execution import frames
from sublet.execution.attempt import Attempt, Crashed, Ended
from sublet.execution.child_process import LEAVE_SECONDS, ChildProcess, ChildRun
from sublet.execution.large import described
from sublet.large_payloads.storage import Storage
from sublet.model import Completion, Release
from sublet.tasks.programs.process_guard import ProcessGuard

if TYPE_CHECKING:
    from sublet.app import Task

log = logging.getLogger(__name__)

MEMORY_MIN = 64 << 20
"""The smallest allowed memory limit, in bytes."""
CPU_MAX = 10**9
AHEAD, AHEAD_SECONDS = 100, 0.02
"""Most jobs to claim ahead of free children, and most seconds of work per child, by the recent duration of
jobs.
"""
BATCH, BATCH_SECONDS, BATCH_BYTES = 16, 0.004, 4096
"""Limits of several jobs sent to a child at once: number, seconds by the recent duration of jobs, and bytes.
"""
RECALL = 0.02
"""A child whose job takes longer than these seconds gives back the jobs behind it."""
PATIENCE = 0.5
"""After so many seconds in which no job ends, jobs that wait for a busy child are released."""
TRIES = 3
"""After so many failed starts of a child in a row, waiting jobs fail if no child runs."""
SPARE_SECONDS = 10.0
"""Seconds after which an idle child beyond `processes` is ended."""
PAUSE, PAUSE_MAX = 0.1, 10.0
"""Seconds between a failed start of a child and the next: the first pause, and the longest; it doubles each
time.
"""


class Limits(NamedTuple):
    """Limits of each child process: bytes of memory (Linux only), jobs until it is replaced, seconds of CPU
    time of one job. None: no limit.
    """

    memory: int | None = None
    jobs: int | None = None
    cpu: float | None = None

    def check(self) -> None:
        """Raise Invalid for a limit that is out of range, or that this platform cannot enforce."""
        if self.memory is not None and not sys.platform.startswith("linux"):
            raise Invalid(
                f"--memory: child processes can be limited on Linux only, and this is {sys.platform}: leave it out"
            )
        if self.memory is not None and self.memory < MEMORY_MIN:
            raise Invalid(
                f"memory limit {self.memory:,} bytes (--memory): use at least {MEMORY_MIN >> 20} MiB; a child process itself needs half of that"
            )
        if self.jobs is not None and self.jobs < 1:
            raise Invalid(f"jobs per child {self.jobs} (--jobs-per-child): use 1 or more")
        if self.cpu is not None and not 1 <= self.cpu <= CPU_MAX:
            raise Invalid(f"limit of {self.cpu:g} s of CPU time for a job (--cpu): use 1 s to {CPU_MAX:,} s")


NO_LIMITS = Limits()


class ProcessPool:
    """Up to `processes` child processes, started when needed, that run plain functions. `lend` allows more.
    Raises Invalid for a task that no child can import, or an invalid limit.
    """

    def __init__(
        self,
        tasks: Sequence["Task[..., Any]"],
        processes: int,
        limits: Limits = NO_LIMITS,
        guard: ProcessGuard | None = None,
        storage: Storage | None = None,
    ) -> None:
        limits.check()
        first = list(dict.fromkeys(module for task in tasks for module in task.app.loaded_by))
        self._numbers = {task.name: number for number, task in enumerate(tasks)}
        self._hello = frames.hello(
            [task.name for task in tasks],
            [frames.address(task) for task in tasks],
            (limits.memory, limits.cpu),
            described(storage, [task.app for task in tasks]),
            first,
        )
        own = {frames.address(task).file or frames.address(task).module for task in tasks}
        self._places = ", ".join([*first, *sorted(own - {*first})])
        self._processes, self._jobs, self._guard = processes, limits.jobs, guard
        self._children: set[ChildProcess] = set()
        self._leaving: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._waiting: deque[ChildRun] = deque()
        self._pace = 1.0
        self._finished = self._seen = 0
        self._minder: asyncio.TimerHandle | None = None
        self._recaller: asyncio.TimerHandle | None = None
        self._shedder: asyncio.TimerHandle | None = None
        self._lent = 0
        self._failures = 0
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The process ids of the children, also of ending ones."""
        return [child.pid for child in (*self._children, *self._leaving)]

    @property
    def waiting(self) -> int:
        """How many jobs wait for a free child."""
        return len(self._waiting)

    @property
    def ahead(self) -> int:
        """How many jobs may be claimed while no child is free for them; above 0 only while jobs are short."""
        return min(AHEAD, int(AHEAD_SECONDS * self._processes / self._pace))

    def lend(self, places: int) -> None:
        """Allow `places` children more than `processes`, because as many running tasks wait for other jobs."""
        self._lent = places
        for child in self._children:
            if len(child.jobs) > 1 and child.jobs[0].attempt.reports.waiting:
                child.ask_back()
        self._dispatch()
        self._shed_later()

    @property
    def _most(self) -> int:
        return self._processes + self._lent

    @property
    def _has_place(self) -> bool:
        return len(self._children) - len(self._idle) < self._most

    def start(self, attempt: Attempt) -> "asyncio.Future[Completion]":
        """Run an attempt's task in the next free child. Cancelling the returned future kills the child if the
        task has begun.

        The future raises Crashed (the child died, or none can start) or Ended (another outcome than a
        result).
        """
        running = ChildRun(attempt, self._numbers[attempt.lease.task], asyncio.get_running_loop())
        if self._idle and self._has_place:
            self._idle.pop().take([running])
        else:
            self._waiting.append(running)
            self._dispatch()
        return running

    def came_free(self, child: ChildProcess) -> None:
        """Send a free child its next jobs, if any wait, or end it if it has run `Limits.jobs` jobs."""
        self._failures = 0
        if child.batch:
            self._finished += child.batch
            self._pace += (max(child.heard - child.began, 1e-5) / child.batch - self._pace) / 8
        if self._jobs is not None and child.taken >= self._jobs:
            child.retire()
        elif batch := self._next_batch(child):
            child.take(batch)
            if len(batch) > 1 and self._recaller is None:
                self._recaller = asyncio.get_running_loop().call_later(RECALL, self._recall)
        else:
            self._idle.append(child)
            self._shed_later()
        if self._waiting:
            self._recruit()

    def _shed_later(self) -> None:
        if self._idle and len(self._children) > self._most and self._shedder is None:
            self._shedder = asyncio.get_running_loop().call_later(SPARE_SECONDS, self._shed)

    def _shed(self) -> None:
        self._shedder = None
        while self._idle and len(self._children) > self._most:
            self._idle[0].retire()

    def _next_batch(self, child: ChildProcess) -> list[ChildRun]:
        most = min(BATCH, int(BATCH_SECONDS / self._pace), 1 + len(self._waiting) // self._processes)
        if self._jobs is not None:
            most = min(most, self._jobs - child.taken)
        batch: list[ChildRun] = []
        left = BATCH_BYTES
        if len(self._children) - len(self._idle) > self._most:
            return batch
        while running := self._next():
            left -= frames.size(running.attempt.lease)
            if batch and left < 0:
                self._waiting.appendleft(running)
                break
            batch.append(running)
            if len(batch) >= most:
                break
        return batch

    def given_back(self, jobs: Sequence[ChildRun]) -> None:
        """Queue these jobs, which a child has not begun, in front; cancel them if the pool is closed."""
        if self._closed or not jobs:
            for job in jobs:
                job.cancel()
            return
        self._waiting.extendleft(job for job in reversed(jobs) if not job.done())
        self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and self._idle and self._has_place:
            running = self._next()
            if running:
                self._idle.pop().take([running])
        if self._waiting:
            self._recruit()
            if self._minder is None:
                self._mind()

    def _recall(self) -> None:
        loop = asyncio.get_running_loop()
        several = [child for child in self._children if len(child.jobs) > 1]
        for child in several:
            if time.monotonic() - child.heard >= RECALL:
                child.ask_back()
        self._recaller = loop.call_later(RECALL, self._recall) if several else None

    def _next(self) -> ChildRun | None:
        while self._waiting:
            running = self._waiting.popleft()
            if not running.done():
                return running
        return None

    def _mind(self) -> None:
        self._waiting = deque(running for running in self._waiting if not running.done())
        if self._finished == self._seen and all(child.up for child in self._children):
            self._pace = 1.0
            busy = sum(bool(child.jobs) for child in self._children)
            for _ in range(busy + len(self._waiting) - self._most):
                running = self._waiting.pop()
                running.set_exception(Ended(Release(running.attempt.lease, 0, "every child process is busy")))
        self._seen = self._finished
        self._minder = asyncio.get_running_loop().call_later(PATIENCE, self._mind) if self._waiting else None

    def _recruit(self) -> None:
        # At most one starts per core at a time
        if len(self._children) >= self._most or self._pause or self._closed:
            return
        coming = sum(not child.up for child in self._children)
        while coming < min(len(self._waiting), os.cpu_count() or 1) and len(self._children) < self._most:
            try:
                self._spawn()
            except OSError as error:  # e.g. no memory
                self._start_failed(f"{type(error).__name__}: {error}")
                break
            coming += 1

    def _spawn(self) -> None:
        child = ChildProcess(self, self._hello, asyncio.get_running_loop())
        self._children.add(child)
        if self._guard:
            self._guard.watch(child.pid)

    def went(self, child: ChildProcess) -> None:
        """Remove a child that takes no more jobs."""
        self._children.discard(child)
        self._leaving.add(child)
        with contextlib.suppress(ValueError):
            self._idle.remove(child)
        if child.up:
            self._dispatch()

    def died(self, child: ChildProcess, words: str) -> None:
        """Remove a child that has ended. If it was never ready, count a failed start for the reason `words`."""
        self._leaving.discard(child)
        if self._guard:
            self._guard.forget(child.pid)
        if not child.up and not self._closed:
            self._start_failed(words)

    def _start_failed(self, words: str) -> None:
        self._failures += 1
        pause = min(PAUSE * 2 ** (self._failures - 1), PAUSE_MAX)
        log.error(
            "a child process could not start (it imports %s): %s; next try in %g s",
            self._places,
            words,
            pause,
        )
        if self._failures >= TRIES and not self._children:
            while running := self._next():
                running.set_exception(
                    Crashed(f"no child process could start (it imports {self._places}): {words}")
                )
        if self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(pause, self._try_again)

    def _try_again(self) -> None:
        self._pause = None
        self._recruit()

    async def aclose(self, patience: float = LEAVE_SECONDS) -> None:
        """Cancel all jobs, and wait until all children have ended: idle ones may take `patience` seconds, at
        most 2; the others are killed.
        """
        self._closed = True
        for timer in (self._pause, self._minder, self._recaller, self._shedder):
            if timer:
                timer.cancel()
        while running := self._next():
            running.cancel()
        for child in list(self._children):
            for job in list(child.jobs):
                job.cancel()
            if child.up and not child.jobs:
                child.retire(min(patience, LEAVE_SECONDS))
            else:
                child.kill()
        if self._leaving:
            await asyncio.wait([child.burial for child in self._leaving])
