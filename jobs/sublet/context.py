"""`Context`: the running attempt, for its task. `Snooze` and `Discard`: exceptions by which a task ends it."""

import contextlib
import json
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, overload

from sublet.errors import Invalid
from sublet.model import Lease, News, Submission
from sublet.protocol.payload import encoded
from sublet.steps.waits import StepOpener, Steps, Upstream

P = ParamSpec("P")
T = TypeVar("T")

CHECKPOINT_MAX = 64 * 1024
LOG_MAX = 8 * 1024
"""Most bytes of an attempt's log that are kept, from its end."""
SEND_SECONDS = 0.1
"""Least seconds between two sends of progress or log by a context without `notify`."""


class Snooze(Exception):
    """A task raises it to release its job: the job runs again after `delay` (seconds or a timedelta), and no
    try is used.

    After 100 releases in a row, the next uses a try, and waits for the backoff instead. Raises ValueError,
    which fails the attempt, for an invalid delay.
    """

    delay = 0.0
    reason = "snoozed"

    def __init__(self, delay: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay, self.reason = checked_delay(delay), str(reason)


class Discard(Exception):
    """A task raises it to make its job dead at once, with `reason` as the error's message."""

    reason = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


def checked_delay(delay: float | timedelta) -> float:
    """Return the delay in seconds. Raises ValueError unless it is 0 to 1e9 s."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e9:
        raise ValueError(f"delay or timeout {delay!r}: use 0 to 1e9 seconds, as a number or a timedelta")
    return float(seconds)


class Context:
    """The running attempt of a job. A task whose first parameter is annotated as `Context` gets it as
    argument. In an async task, await `step`, `sleep`, `wait_for`, `call` and `emit`.
    """

    ending = ""
    """Why the attempt must end now: `timed_out`, `stalled`, `cancelled`, `lost` (its lease), `stopping` (its
    worker); else empty. In a child process always empty: the worker kills it.
    """
    arguments: Mapping[str, Any] = MappingProxyType({})
    """The job's arguments by name, converted to the annotated types, without those that the submit left out.
    Read-only.
    """
    _done, _stage, _message = 0.0, "", ""
    _unsent: frozenset[News] = frozenset()
    _sent_at = 0.0
    _log: deque[str] | None = None
    _waits = 0
    _steps: Steps | None = None

    def __init__(
        self,
        lease: Lease,
        send: Callable[[News, bytes], None],
        notify: Callable[[], None] | None = None,
        opener: StepOpener | None = None,
    ) -> None:
        self._lease, self._send, self._notify, self._opener = lease, send, notify, opener
        self._started = time.monotonic()

    @property
    def id(self) -> str:
        """The job's id."""
        return self._lease.id

    @property
    def task(self) -> str:
        """The task's name."""
        return self._lease.task

    @property
    def queue(self) -> str:
        """The job's queue."""
        return self._lease.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        """How many tries the job has in all."""
        return self._lease.max_attempts

    @property
    def tries_left(self) -> int:
        """Tries that are left if this attempt fails; 0: none. A step that this attempt keeps renews the tries."""
        renewed = self._steps is not None and self._steps.renewed
        return self._lease.max_attempts - 1 if renewed else self._lease.tries_left

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return self._lease.tags

    @property
    def fence(self) -> int:
        """A number that grows with each claim. Store it with each write: a database can then refuse writes of
        earlier attempts.
        """
        return self._lease.fence

    @property
    def recovered(self) -> str | None:
        """How the job's previous attempt ended: `lease_expired`, `released`, `suspended`, a failure's code,
        …; None for the first attempt.
        """
        return self._lease.recovered or None

    @property
    def trace(self) -> str:
        """The W3C Trace Context header `traceparent` of the submitter; empty without one."""
        return self._lease.trace

    @property
    def occurrence(self) -> datetime | None:
        """The moment (UTC) for which a schedule submitted the job; None for other jobs."""
        return (
            None
            if self._lease.occurrence_ms is None
            else datetime.fromtimestamp(self._lease.occurrence_ms / 1000, UTC)
        )

    @property
    def cancelled(self) -> bool:
        """Whether the attempt must end now (see `ending`). A task in a thread should clean up and return; an
        async one is cancelled.
        """
        return bool(self.ending)

    @property
    def remaining(self) -> float | None:
        """Seconds until the attempt's timeout, at least 0; None without a timeout."""
        if self._lease.timeout_ms is None:
            return None
        return max(0.0, self._lease.timeout_ms / 1000 - (time.monotonic() - self._started))

    @property
    def deadline(self) -> datetime | None:
        """The moment of the attempt's timeout, in UTC; None without a timeout."""
        left = self.remaining
        return None if left is None else datetime.now(UTC) + timedelta(seconds=left)

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Report progress (`fraction`, cut to 0 to 1), the current stage (64 characters) and a message (128).
        The latest report is sent, at most about 4 times a second. Without `stage`, the last stage stays;
        the last message does not. Raises Invalid unless `fraction` is a number.
        """
        if not isinstance(fraction, int | float) or math.isnan(fraction):
            raise Invalid(f"progress {str(fraction)[:40]}: use a number from 0 to 1")
        self._done = min(max(fraction, 0.0), 1.0)
        self._stage, self._message = stage[:64] or self._stage, message[:128]
        self._report(News.PROGRESS)

    def stage(self, name: str) -> None:
        """Report the name of the current stage; keep the fraction, remove the message."""
        self.progress(self._done, stage=name)

    def checkpoint(self, data: Any) -> None:
        """Store `data`, any JSON value of at most 64 KiB. A later attempt of the job reads it as `restored`.

        It replaces the last checkpoint, reaches Redis within 0.5 s, and is deleted when the job is completed.
        Raises Invalid.
        """
        text = encoded("checkpoint: the data", data)
        if len(text) > CHECKPOINT_MAX:
            raise Invalid(
                f"checkpoint of {len(text):,} bytes: the limit is {CHECKPOINT_MAX:,}: store the data elsewhere, and only its address in the checkpoint"
            )
        self._send(News.CHECKPOINT, text)

    def spent(self, cost: int) -> None:
        """Report the attempt's real cost, in place of the option `cost` or an earlier report. The difference
        corrects the rates of the job's queue and group. Sent within 0.5 s. Raises Invalid.
        """
        if type(cost) is not int or not 0 <= cost < 10**14:
            raise Invalid(f"spent {str(cost)[:40]}: use a whole number from 0, of up to 14 digits")
        self._send(News.COST, b"%d" % cost)

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function and keep its result under a name, at most 64 KiB of JSON; in a later attempt,
        return the kept result instead. Both are returned as read from JSON. Raises the function's exceptions;
        Invalid for an invalid result or name, or one that the attempt has used; StepsFull, LeaseLost.
        """
        return self._opened().step(name, function, args, kwargs)

    def step_key(self, name: str) -> str:
        """Return `JOB-ID:name`, the same in all attempts: an idempotency key for a service that the step calls."""
        return f"{self.id}:{name}"

    def sleep(
        self,
        name: str,
        seconds: float | timedelta | None = None,
        *,
        days: float | None = None,
        hours: float | None = None,
        minutes: float | None = None,
    ) -> Awaitable[None]:
        """End the attempt, and run the job again after this time, the sum of all units. In that later
        attempt, return at once. Raises Invalid without a time, ValueError for an invalid one.
        """
        if all(time is None for time in (seconds, days, hours, minutes)):
            raise Invalid(f"sleep {name!r} has no time: give seconds, minutes, hours or days, or a timedelta")
        more = checked_delay(timedelta(days=days or 0, hours=hours or 0, minutes=minutes or 0))
        slept: Awaitable[None] = self._opened().sleep(name, checked_delay(seconds or 0) + more)
        return slept

    def wait_for(self, name: str, *, timeout: float | timedelta | None = None) -> Any:
        """Return the value of the signal `name`, which `client.signal` sends. If it has not arrived, end the
        attempt; the job runs again when it has, or after `timeout` (None: never): then raise TimeoutError.
        """
        return self._opened().wait_for(name, None if timeout is None else checked_delay(timeout))

    def call(self, name: str, job: Submission) -> Any:
        """Submit a job, made by `Task.job(…)`, as a step, and return its result, as read from JSON. If it has
        not ended, end the attempt; the calling job runs again when it has. Raises JobFailed, JobCancelled,
        QueueFull, StepsFull, Invalid.
        """
        return self._opened().call(name, job)

    def emit(self, chunk: Any) -> Awaitable[None]:
        """Append a chunk, any JSON of at most 64 KiB, to the job's stream, for those who read along:
        `handle.stream()`, `GET /jobs/{id}/stream`. Sent within 0.05 s. Raises Invalid; for an earlier chunk
        LeaseLost, OutOfMemory.
        """
        emitted: Awaitable[None] = self._opened().emit(chunk)
        return emitted

    @property
    def upstream(self) -> Upstream:
        """The `Outcome` of each job that this one waited for, in the order given: `async for one in
        ctx.upstream`, or `await ctx.upstream` for a list; in a plain function `for`. The error of a deleted
        job is NotFound.
        """
        return self._opened().upstream()

    def open_with(self, opener: StepOpener) -> None:
        """Let `opener` open the steps, unless they are open."""
        self._opener = opener

    def _opened(self) -> Steps:
        if self._steps is None:
            if self._opener is None:
                raise Invalid(
                    "this context has no steps, stream or upstream jobs: run the task with a worker, or in sublet.testing.Sandbox"
                )
            self._steps = self._opener.open_steps(self._lease)
        return self._steps

    @property
    def restored(self) -> Any:
        """The last checkpoint that an earlier attempt stored; None if there is none."""
        return json.loads(self._lease.checkpoint) if self._lease.checkpoint else None

    def log(self, text: str) -> None:
        """Add text, split into lines, to the attempt's log; `logging` records of the task go there, too.
        Of each of the last five attempts, the last 512 lines, at most 8 KiB, are kept.
        """
        if self._log is None:
            self._log = deque()
        after = time.monotonic() - self._started
        self._log.extend(f"+{after:.3f} {line}"[:1024] for line in text.splitlines() or [""])
        while len(self._log) > LOG_MAX // 16:
            self._log.popleft()
        self._report(News.LOG)

    def keep_output(self, output: str) -> None:
        """Keep a program's output when its attempt must end: as the failure's detail or, if the worker stops,
        in the log.
        """
        if self.ending == "stopping":
            self.log(output)
        else:
            self._send(News.DETAIL, output.encode())

    @property
    def seconds(self) -> float:
        """How many seconds the attempt has run."""
        return time.monotonic() - self._started

    def waits(self, change: int) -> None:
        """Report that the task begins (1) or ends (-1) a wait for another job."""
        with _counting:
            before, self._waits = self._waits, self._waits + change
            if not (before and self._waits):
                self._send(News.WAITING, b"%d" % bool(self._waits))

    def _report(self, news: News) -> None:
        self._unsent |= {news}
        if self._notify:
            self._notify()
        elif time.monotonic() - self._sent_at >= SEND_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send the pending progress and log. Its owner calls this after each `notify`, and at the end."""
        if not self._unsent:
            return
        self._sent_at = time.monotonic()
        unsent, self._unsent = self._unsent, frozenset()
        if News.PROGRESS in unsent:
            news: dict[str, Any] = {
                "fraction": round(self._done, 4),
                "stage": self._stage,
                "message": self._message,
            }
            self._send(
                News.PROGRESS,
                json.dumps({name: value for name, value in news.items() if value != ""}).encode(),
            )
        if News.LOG in unsent:
            self._send(News.LOG, _tail("\n".join(list(self._log or ())).encode("utf-8", "replace")))


def _tail(text: bytes) -> bytes:
    return text if len(text) <= LOG_MAX else text[-LOG_MAX:].partition(b"\n")[2]


current: ContextVar[Context | None] = ContextVar("sublet_context", default=None)
"""The context of the task that runs in this thread or asyncio task, else None."""
_counting = threading.Lock()


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """In the `with` block, report to the worker that the `current` task, if any, waits for another job."""
    context = current.get()
    if context is None:
        yield
        return
    context.waits(1)
    try:
        yield
    finally:
        context.waits(-1)
