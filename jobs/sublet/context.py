"""`Context`: the running attempt, for its task. `Snooze` and `Discard`: exceptions by which a task ends it."""

import contextlib
import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from sublet.errors import Invalid
from sublet.model import Lease, News

CHECKPOINT_MAX = 64 * 1024
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_MAX = 8 * 1024
"""Most bytes kept of an attempt's log: its end."""
SEND_SECONDS = 0.1
"""Minimum seconds between two reports of an attempt without `notify`."""


class Snooze(Exception):
    """A task raises it to release its job for `delay` (seconds, or a timedelta), without using a try.

    After 100 releases in a row, the next uses a try and has the backoff as delay. An invalid delay raises
    ValueError, which fails the attempt.
    """

    delay = 0.0
    reason = "snoozed"

    def __init__(self, delay: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay, self.reason = checked_delay(delay), str(reason)


class Discard(Exception):
    """A task raises it to make its job dead at once, even if tries are left."""

    reason = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


def checked_delay(delay: float | timedelta) -> float:
    """Return the delay in seconds. Raises ValueError unless it is 0 to 1e9 s."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e9:
        raise ValueError(f"delay {delay!r}: use a number of seconds from 0 to 1e9, or a timedelta")
    return float(seconds)


class Context:
    """The running attempt of a job. A task whose first parameter is a `Context` receives it."""

    ending = ""
    """Why the attempt is being ended: `timed_out`, `stalled`, `cancelled`, `lost`, `stopping`; else empty."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """The arguments by name, as the function gets them: converted to the annotated types, without those left
    out at the submit. Read-only."""
    _done, _stage, _message = 0.0, "", ""
    _unsent: frozenset[News] = frozenset()
    _sent_at = 0.0
    _log: deque[str] | None = None
    _waits = 0

    def __init__(
        self, lease: Lease, send: Callable[[News, bytes], None], notify: Callable[[], None] | None = None
    ) -> None:
        # small: one is made for every attempt
        self._lease, self._send, self._notify = lease, send, notify
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
        """Tries before the job is dead."""
        return self._lease.max_attempts

    @property
    def tries_left(self) -> int:
        """Tries left after this attempt; 0: the last one. A released attempt used none."""
        return self._lease.tries_left

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return self._lease.tags

    @property
    def fence(self) -> int:
        """A number that grows with each claim: with it, a database can refuse writes of an earlier attempt."""
        return self._lease.fence

    @property
    def recovered(self) -> str | None:
        """How the job's previous attempt ended (`lease_expired`, `crashed`, a failure's code …); None for the
        first.
        """
        return self._lease.recovered or None

    @property
    def trace(self) -> str:
        """The submitter's `traceparent` (W3C Trace Context), or empty."""
        return self._lease.trace

    @property
    def occurrence(self) -> datetime | None:
        """The occurrence of the schedule that submitted the job, in UTC; None for other jobs."""
        return (
            None
            if self._lease.occurrence_ms is None
            else datetime.fromtimestamp(self._lease.occurrence_ms / 1000, UTC)
        )

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is being ended, for any reason (see `ending`): clean up and return."""
        return bool(self.ending)

    @property
    def remaining(self) -> float | None:
        """Seconds until the attempt's timeout; None without one."""
        if self._lease.timeout_ms is None:
            return None
        return max(0.0, self._lease.timeout_ms / 1000 - (time.monotonic() - self._started))

    @property
    def deadline(self) -> datetime | None:
        """The time of the attempt's timeout, in UTC by this machine's clock; None without one."""
        left = self.remaining
        return None if left is None else datetime.now(UTC) + timedelta(seconds=left)

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Report progress from 0 to 1. The latest is sent, about 4 times a second. An empty `stage` keeps the
        last one. Raises Invalid for no number.
        """
        if not isinstance(fraction, int | float) or math.isnan(fraction):
            raise Invalid(f"progress {str(fraction)[:40]}: use a number from 0 to 1")
        self._done = min(max(fraction, 0.0), 1.0)
        self._stage, self._message = stage[:64] or self._stage, message[:128]
        self._report(News.PROGRESS)

    def stage(self, name: str) -> None:
        """Report the current stage, and clear the message."""
        self.progress(self._done, stage=name)

    def checkpoint(self, data: Any) -> None:
        """Store `data` (JSON, at most 64 KiB) for later attempts of the job, which get it as `restored`.

        Replaces the last checkpoint. Sent within 0.5 s; deleted when the job is completed. Raises Invalid.
        """
        try:
            encoded = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Invalid(f"checkpoint: the data cannot be written as JSON: {error}") from None
        if len(encoded) > CHECKPOINT_MAX:
            raise Invalid(
                f"checkpoint of {len(encoded):,} bytes: the limit is {CHECKPOINT_MAX:,}: store the data elsewhere, its address here"
            )
        self._send(News.CHECKPOINT, encoded)

    @property
    def restored(self) -> Any:
        """The latest checkpoint of an earlier attempt, or None."""
        return json.loads(self._lease.checkpoint) if self._lease.checkpoint else None

    def log(self, text: str) -> None:
        """Add lines to the attempt's log, which also has the records of `logging`. Its last 512 lines, at
        most 8 KiB, are kept.
        """
        if self._log is None:
            self._log = deque()
        after = time.monotonic() - self._started
        self._log.extend(f"+{after:.3f} {line}"[:1024] for line in text.splitlines() or [""])
        while len(self._log) > LOG_MAX // 16:
            self._log.popleft()
        self._report(News.LOG)

    def keep_output(self, output: str) -> None:
        """Keep the output of a program that ends with the attempt: as its detail or, when it is released, in its log."""
        if self.ending == "stopping":
            self.log(output)
        else:
            self._send(News.DETAIL, output.encode())

    @property
    def seconds(self) -> float:
        """How long the attempt has run."""
        return time.monotonic() - self._started

    def waits(self, change: int) -> None:
        """Count a wait for another job that begins (1) or ends (-1)."""
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
        """Send the pending progress and log. To be called after `notify`, and at the attempt's end."""
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
"""The context of the task that is running here, else None."""
_counting = threading.Lock()


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Report that the task running here waits for another job, until the block ends."""
    context = current.get()
    if context is None:
        yield
        return
    context.waits(1)
    try:
        yield
    finally:
        context.waits(-1)


class JobLogHandler(logging.Handler):
    """Adds the `logging` records of a running task to its attempt's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add one record."""
        context = current.get()
        if context is None or record.__dict__.get("sublet_kept"):
            return
        record.__dict__["sublet_kept"] = True  # each worker of the process has a handler
        try:
            context.log(f"{record.levelname.lower()} {self.format(record)}")
        except Exception:  # noqa: BLE001  # a record that cannot be formatted must not fail the task
            self.handleError(record)


def job_log_level() -> str:
    """Return SUBLET_LOG_LEVEL in upper case; empty if it is not set. Raises Invalid."""
    level = os.environ.get("SUBLET_LOG_LEVEL", "")
    if level and level.upper() not in LOG_LEVELS:
        raise Invalid(f"SUBLET_LOG_LEVEL={level[:40]!r}: use {', '.join(LOG_LEVELS).lower()}")
    return level.upper()


def keep_logs() -> JobLogHandler:
    """Add to the root logger a handler that keeps records from SUBLET_LOG_LEVEL on (INFO); return it.

    If set, it lowers the root logger's level. Raises Invalid.
    """
    level, root = job_log_level(), logging.getLogger()
    handler = JobLogHandler(level or logging.INFO)
    if level and root.level > handler.level:
        root.setLevel(handler.level)
    root.addHandler(handler)
    return handler
