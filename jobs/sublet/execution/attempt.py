"""One attempt at a job, and its ending: the outcome to settle."""

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from sublet.context import Context, Discard, Snooze, checked_delay
from sublet.errors import Invalid, JobsError, Unavailable
from sublet.execution import stack
from sublet.execution.following import joined
from sublet.execution.steps.emitter import Emitter
from sublet.execution.steps.kept import LoopSteps, PlainSteps
from sublet.large_payloads.storage import Storage
from sublet.model import Completion, Ending, Failure, Following, Lease, News, Note, Release, Suspension
from sublet.steps.waits import Steps, Suspended
from sublet.store.source import JobSource
from sublet.tasks.arguments import InvalidResult
from sublet.tasks.error_rules import ErrorRules
from sublet.tasks.programs.program import ProgramFailed

KEEP_AGAIN = 0.5
"""Seconds between two tries of `Reports.ask` while the server is unavailable."""
STARVED = (
    "every slot, or child process, of the worker waits for the result of another job; see the worker's output"
)


class Why(StrEnum):
    """Why a worker ends an attempt before its task has ended."""

    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The lease has expired, or the job has ended: no outcome is reported."""
    STOPPING = "stopping"


class UnknownTask(JobsError):
    """This worker does not have, or cannot import, the task; or has no backend for its large payload; or the
    task does not take the arguments. The job is released.
    """


def unfit(error: Invalid) -> UnknownTask:
    """Make the error for a payload that does not fit the task's parameters."""
    return UnknownTask(f"the payload does not match this worker's version of the task: {error}")


class Crashed(JobsError):
    """The child process died during the task, or none could be started: the attempt fails."""


class Ended(Exception):
    """Carries an outcome without a result: from a child process or thread, or of an exception that asyncio
    must not see.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(type(ending).__name__)
        self.ending = ending


class Reports:
    """Reports of an attempt's task: of each kind the last unsent one; and whether the task waits for another
    job's result.

    Calls `notify` when there is a report to send, `waits` when `waiting` changes; both from any thread.
    """

    progress = checkpoint = log = detail = cost = b""
    waiting = False
    progressed_at = 0.0
    thread_of: asyncio.AbstractEventLoop | None = None
    """For a task in a thread: the event loop on which its calls to the job source run; else None."""
    following: Following | None = None
    """The jobs that follow, as a child process reported them."""
    storage: Storage | None = None
    """For large results of other jobs; None without a backend, or for a child process."""
    emitter: Emitter | None = None

    def __init__(
        self, notify: Callable[[], None], waits: Callable[[], None], source: JobSource | None
    ) -> None:
        self._notify, self._waits, self._source = notify, waits, source

    def open_steps(self, lease: Lease) -> Steps:
        """Return the attempt's steps: PlainSteps for a task in a thread, else LoopSteps."""
        ask, loop = partial(self.ask, lease), self.thread_of
        if loop is None:
            return LoopSteps(lease, ask, self.storage)
        return PlainSteps(
            lease,
            lambda what, argument: asyncio.run_coroutine_threadsafe(ask(what, argument), loop).result(),
            self.storage,
        )

    async def ask(self, lease: Lease, what: str, argument: Any) -> Any:
        """Call the source's method `what` until the server answers; return the answer. `emit` adds a chunk to
        a batch, which other calls send first; it returns None. Raises Refused, Invalid, lasting Unavailable.
        """
        if self._source is None:
            raise Invalid(
                "this attempt has no source of jobs for steps, chunks or upstream jobs: run the task with a worker"
            )
        if what == "emit":
            await self._emit(self._source, lease, argument)
            return None
        if self.emitter:
            await self.emitter.flush()
        while True:
            try:
                found = await getattr(self._source, what)(lease, argument)
            except Unavailable as error:
                if error.lasting:
                    raise
                await asyncio.sleep(KEEP_AGAIN)
            else:
                self.progressed_at = time.monotonic()
                return found

    async def _emit(self, source: JobSource, lease: Lease, chunk: bytes) -> None:
        self.progressed_at = time.monotonic()
        if self.emitter is None:
            self.emitter = Emitter(partial(source.emit, lease), partial(asyncio.sleep, KEEP_AGAIN))
        await self.emitter.add(chunk)

    def add(self, news: News, body: bytes) -> None:
        """Keep a report; it replaces an unsent one of its kind, or (FOLLOWING) adds to it. Safe from any
        thread.
        """
        if news is News.WAITING:
            self.waiting = body == b"1"
            self._waits()
            return
        if news is News.DETAIL:
            self.detail = body
            return
        if news is News.FOLLOWING:
            self.following = joined(self.following, body)
            return
        if news not in (News.LOG, News.COST):
            self.progressed_at = time.monotonic()
        if news is News.PROGRESS:
            self.progress = body
        elif news is News.CHECKPOINT:
            self.checkpoint = body
        elif news is News.COST:
            self.cost = body
        else:
            self.log = body
        self._notify()


class Attempt:
    """One leased job and the run of its task. Calls `notify` when there is a report to send, `waits` when the
    task begins or ends a wait for another job.
    """

    why: Why | None = None
    error_rules: ErrorRules | None = None
    stack = ""
    message = ""
    cancelled_at = 0.0
    cancels_ignored = 0
    running: "asyncio.Future[Completion] | None" = None
    sending: asyncio.Task[None] | None = None
    """The asyncio task of the latest notes: the outcome waits for it. None before the first."""

    def __init__(
        self,
        lease: Lease,
        notify: Callable[[], None] = lambda: None,
        waits: Callable[[], None] = lambda: None,
        source: JobSource | None = None,
    ) -> None:
        self.lease, self.reports = lease, Reports(notify, waits, source)
        # Not a method of this attempt: finished jobs must leave no reference cycle
        self.context = Context(lease, self.reports.add, notify, self.reports)

    def note(self) -> Note | None:
        """Return and forget the checkpoint, log and cost that are not sent yet; None without any."""
        unsent = self.reports
        if not (unsent.checkpoint or unsent.log or unsent.cost):
            return None
        note = Note(self.lease, unsent.checkpoint, unsent.log, unsent.cost)
        unsent.checkpoint = unsent.log = unsent.cost = b""
        return note

    def put_back(self, note: Note) -> None:
        """Keep a checkpoint, log and cost that could not be sent, unless there are newer ones."""
        unsent = self.reports
        unsent.checkpoint = unsent.checkpoint or note.checkpoint
        unsent.log = unsent.log or note.log
        unsent.cost = unsent.cost or note.cost

    def end(self, why: Why) -> None:
        """Cancel the running task, once. `why` decides the outcome of a task that ends as cancelled."""
        if self.why is None and self.running and not self.running.done():
            self.why, self.cancelled_at = why, time.monotonic()
            self.context.ending = why.value
            self.running.cancel(why.value)

    def cancel_again(self) -> None:
        """Cancel a task again that ignored its cancellation."""
        if self.running and not self.running.done():
            self.cancelled_at = time.monotonic()
            self.cancels_ignored += 1
            self.running.cancel()

    def ending(self) -> Ending | None:
        """Return the outcome of a task that has ended; None after a lost lease."""
        assert self.running is not None
        if self.why is Why.LOST:
            return None
        if self.running.cancelled():
            again = self.why is not None or _again(self.error_rules, asyncio.CancelledError)
            detail = self.stack or self.reports.detail.decode()
            ending = ending_of_stop(self.lease, self.why, detail, again)
            if self.message and isinstance(ending, Failure):
                return ending._replace(message=self.message)
            return ending
        error = self.running.exception()
        if error is None:
            return self.running.result()
        return ending_of(self.lease, error, self.error_rules)


def ending_of_stop(lease: Lease, why: Why | None, detail: str = "", again: bool = True) -> Ending:
    """Return the outcome of a cancelled task: a release at STOPPING, else a failure with the text `detail`.
    `why` is None if the task cancelled itself: no `detail`, and `again` is whether it may be tried again.
    """
    if why is Why.TIMED_OUT:
        return Failure(lease, "timed_out", f"ran longer than {(lease.timeout_ms or 0) / 1000:g} s", detail)
    if why is Why.STALLED:
        return Failure(lease, "stalled", f"no progress for {(lease.stall_ms or 0) / 1000:g} s", detail)
    if why is Why.CANCELLED:
        return Failure(lease, "cancelled", "cancelled on request", detail, again=False)
    if why is Why.STOPPING:
        return Release(lease, 0, "the worker stopped")
    return Failure(lease, "CancelledError", "the task cancelled itself", again=again)


def _again(rules: ErrorRules | None, kind: type[BaseException]) -> bool:
    return rules is None or rules.again(kind)


def ending_of(lease: Lease, error: BaseException, rules: ErrorRules | None = None) -> Ending:
    """Return the outcome of a task that raised `error`: a failure, release or suspension. `rules`: the task's
    `retry_on` and `discard_on`.
    """
    again = _again(rules, type(error))
    try:
        return _ending_of(lease, error, again)
    except BaseException as second:  # noqa: BLE001  # e.g. a Snooze with an invalid delay: it must not end the worker
        return Failure(
            lease,
            type(error).__name__,
            f"the task's exception cannot be read: its code raised {type(second).__name__}",
            again=again,
        )


def _ending_of(lease: Lease, error: BaseException, again: bool) -> Ending:
    if isinstance(error, Ended):
        return error.ending
    if isinstance(error, ProgramFailed):
        return Failure(lease, error.code, error.message, error.detail, again)
    if isinstance(error, Suspended):
        return Suspension(lease, error.kind, error.name, error.seconds)
    if isinstance(error, BaseExceptionGroup) and error.split(Suspended)[1] is None:  # of a TaskGroup
        return _ending_of(lease, error.exceptions[0], again)
    if isinstance(error, Snooze):
        return Release(lease, checked_delay(error.delay), stack.cut(str(error.reason)))
    if isinstance(error, Discard):
        return Failure(lease, "discarded", stack.cut(str(error.reason)), again=False)
    if isinstance(error, UnknownTask):
        return Release(lease, 0, str(error)[:1024], "unknown_task")
    if isinstance(error, Crashed):
        return Failure(lease, "crashed", str(error))
    if isinstance(error, InvalidResult):
        return Failure(lease, "invalid_result", str(error), again=False)
    return Failure(lease, type(error).__name__, *_words(error), again)


def _words(error: BaseException) -> tuple[str, str]:
    try:
        return stack.cut(" ".join(str(error).split())), stack.of_error(error)
    except BaseException as second:  # noqa: BLE001  # a broken __str__ must not hide the failure
        said = f"the exception's message cannot be read: its code raised {type(second).__name__}"
        return said, stack.of_frames(error)


def put_back(notes: Sequence[tuple[Attempt, Note]]) -> None:
    """Give each attempt back the checkpoint, log and cost that could not be sent."""
    for attempt, note in notes:
        attempt.put_back(note)
