"""One attempt at a job: what the worker knows of it while it runs, and how what happened becomes an ending."""

import asyncio
import traceback
from enum import StrEnum

from jobs.context import Context, Discard, Snooze
from jobs.errors import Invalid, JobsError
from jobs.model import Completion, Ending, Failure, Lease, Release


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


class Crashed(JobsError):
    """The child process that ran the task died."""


class EndedInChild(Exception):
    """A task that ran in a child process ended without a result; the ending says how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(type(ending).__name__)
        self.ending = ending


class Attempt:
    """A lease that is being worked on."""

    __slots__ = ("context", "lease", "progress", "running", "timer", "why")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.progress = b""
        self.context = Context(lease, self.tell)
        self.why: Why | None = None
        self.running: asyncio.Task[Completion] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def tell(self, progress: bytes) -> None:
        """Keep what the task said of its progress for the next heartbeat."""
        self.progress = progress

    def end(self, why: Why) -> None:
        """Stop the task; how its ending reads depends on why."""
        if self.why is None and self.running and not self.running.done():
            self.why = why
            self.context.cancelled = True
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
    """The ending of an attempt whose task raised."""
    if isinstance(error, EndedInChild):
        return error.ending
    if isinstance(error, Snooze):
        return Release(lease, error.delay, error.reason)
    if isinstance(error, Discard):
        return Failure(lease, "discarded", error.reason, again=False)
    if isinstance(error, UnknownTask):
        return Release(lease, 0, f"unknown_task: {error}")
    if isinstance(error, Crashed):
        return Failure(lease, "crashed", str(error))
    if isinstance(error, Invalid):
        return Failure(lease, "invalid_result", str(error), again=False)
    lines = traceback.format_exception(error)
    return Failure(lease, type(error).__name__, _one_line(str(error)), "".join(lines)[-4096:])


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1024]
