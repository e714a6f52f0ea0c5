"""One attempt at a job: what the worker knows of it while it runs, and how what happened becomes an ending."""

import asyncio
import time
import traceback
from collections.abc import Callable
from enum import StrEnum

from sublet.context import Context, Discard, Snooze, checked_delay
from sublet.errors import Invalid, JobsError
from sublet.model import Completion, Ending, Failure, Lease, News, Note, Release
from sublet.tasks.program import ProgramFailed


class Why(StrEnum):
    """Why a worker ends an attempt before its task is done."""

    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The lease was given to another, or the job is over: nothing more that this attempt does counts."""
    STOPPING = "stopping"
    """The worker goes; the job is given back."""


class UnknownTask(JobsError):
    """This worker's code cannot run the job: it has no such task, or its payload is of another version."""


def unfit(error: Invalid) -> UnknownTask:
    """What arguments that do not fit the task come to."""
    return UnknownTask(f"its arguments do not fit the task here: {error}")


class Crashed(JobsError):
    """The child process that ran the task died."""


class Ended(Exception):
    """A task ended without a result, in a child process or by what must not pass through an event loop; the ending says how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(type(ending).__name__)
        self.ending = ending


class Said:
    """What a task has told and was not sent yet; only the latest of each kind counts.

    Apart from the attempt, which has it and the context that speaks into it: a circle of the three would be left to the
    garbage collector, and cost as much as all else that a worker does for a job.
    """

    progress = checkpoint = log = b""

    def __init__(self, hear: Callable[[], None]) -> None:
        self._hear = hear

    def tell(self, news: News, body: bytes) -> None:
        """Keep what the task told until it is sent. Safe from any thread."""
        if news is News.PROGRESS:
            self.progress = body
        elif news is News.CHECKPOINT:
            self.checkpoint = body
        else:
            self.log = body
        self._hear()


class Attempt:
    """A lease that is being worked on."""

    why: Why | None = None
    cancelled_at = 0.0
    """When its task was told to stop, on the monotonic clock."""
    running: "asyncio.Future[Completion] | None" = None
    sending: asyncio.Task[None] | None = None
    """The sending of its latest note by the pulse: its ending waits for that."""

    def __init__(self, lease: Lease, hear: Callable[[], None] = lambda: None) -> None:
        self.lease, self.said = (
            lease,
            Said(hear),
        )  # `hear` is called when the task has told something that is to be sent
        self.context = Context(lease, self.said.tell, hear)

    def note(self) -> Note | None:
        """What is to be kept with the job and was not sent yet; it is taken as sent from now on."""
        said = self.said
        if not (said.checkpoint or said.log):
            return None
        note = Note(self.lease, said.checkpoint, said.log)
        said.checkpoint = said.log = b""
        return note

    def put_back(self, note: Note) -> None:
        """The note could not be sent: keep it for later, unless there is newer news."""
        said = self.said
        said.checkpoint, said.log = said.checkpoint or note.checkpoint, said.log or note.log

    def end(self, why: Why) -> None:
        """Stop the task; how its ending reads depends on why."""
        if self.why is None and self.running and not self.running.done():
            self.why, self.cancelled_at = why, time.monotonic()
            self.context.ending = why.value
            self.running.cancel()

    def cancel_again(self) -> None:
        """The task was told to stop, and runs on: tell it again."""
        if self.running and not self.running.done():
            self.cancelled_at = time.monotonic()
            self.running.cancel()

    def ending(self) -> Ending | None:
        """What to tell the source, now that the task is done; None when nothing we say would count."""
        assert self.running is not None
        if self.why is Why.LOST:
            return None
        if self.running.cancelled():
            return ending_of_stop(self.lease, self.why)
        error = self.running.exception()
        if error is None:
            return self.running.result()
        return ending_of(self.lease, error)


def ending_of_stop(lease: Lease, why: Why | None) -> Ending:
    """The ending of an attempt that was stopped."""
    if why is Why.TIMED_OUT:
        return Failure(lease, "timed_out", f"ran longer than {(lease.timeout_ms or 0) / 1000:g} s")
    if why is Why.CANCELLED:
        return Failure(lease, "cancelled", "cancelled on request", again=False)
    if why is Why.STOPPING:
        return Release(lease, 0, "the worker stopped")
    return Failure(lease, "CancelledError", "the task cancelled itself")


def ending_of(lease: Lease, error: BaseException) -> Ending:
    """The ending of an attempt whose task raised. An exception is a user's code, too: whatever it does, there is an ending."""
    try:
        return _ending_of(lease, error)
    except BaseException as second:  # noqa: BLE001  # e.g. a Snooze whose delay was spoilt: it must not end the worker
        return Failure(
            lease, type(error).__name__, f"it could not be told how it ended: {type(second).__name__}"
        )


def _ending_of(lease: Lease, error: BaseException) -> Ending:
    if isinstance(error, Ended):
        return error.ending
    if isinstance(error, ProgramFailed):
        return Failure(lease, error.code, error.message, error.detail)
    if isinstance(error, Snooze):
        return Release(lease, checked_delay(error.delay), str(error.reason)[:1024])
    if isinstance(error, Discard):
        return Failure(lease, "discarded", str(error.reason)[:1024], again=False)
    if isinstance(error, UnknownTask):
        return Release(lease, 0, f"unknown_task: {error}"[:1024])
    if isinstance(error, Crashed):
        return Failure(lease, "crashed", str(error))
    if isinstance(error, Invalid):
        return Failure(lease, "invalid_result", str(error), again=False)
    return Failure(lease, type(error).__name__, *_words(error))


def _words(error: BaseException) -> tuple[str, str]:
    """What an exception says on one line, and its trace; both are a user's code, which may raise again."""
    try:
        return " ".join(str(error).split())[:1024], "".join(traceback.format_exception(error))[-4096:]
    except BaseException as second:  # noqa: BLE001  # whatever a broken __str__ raises, the failure itself must be told
        return f"its words could not be read: {type(second).__name__}", "".join(
            traceback.format_tb(error.__traceback__)
        )[-4096:]
