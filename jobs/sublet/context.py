"""`Context`, through which a running task sees its attempt and reports progress; and `Snooze` and `Discard` to raise."""

import json
import logging
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

from sublet.errors import Invalid
from sublet.model import Lease, News

CHECKPOINT_MAX = 64 * 1024
"""Maximum bytes of a checkpoint, as JSON."""
LOG_MAX = 8 * 1024
"""Bytes of the log that are kept of one attempt: the last ones."""
SEND_SECONDS = 0.1
"""Minimum seconds between two reports of progress or log. A report that comes sooner is sent with the next, or by `flush`."""


class Snooze(Exception):
    """Raise it in a task to release the job for `delay` (seconds, or a timedelta). The try does not count.

    After 100 in a row, one counts. Raises ValueError for an invalid delay, which fails the attempt.
    """

    delay = 0.0
    reason = "snoozed"

    def __init__(self, delay: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay, self.reason = checked_delay(delay), str(reason)


class Discard(Exception):
    """Raise it in a task to make the job dead at once, even if tries are left."""

    reason = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


def checked_delay(delay: float | timedelta) -> float:
    """Return a delay in seconds. Raises ValueError for an invalid one."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e9:
        raise ValueError(f"delay {delay!r}: use a number of seconds from 0 to 1e9, or a timedelta")
    return float(seconds)


class Context:
    """The running attempt. A task whose first parameter is a `Context` receives it."""

    ending = ""
    """Why the attempt is ended early: `timed_out`, `cancelled`, `lost`, `stopping`; else empty."""
    _done, _stage, _message = 0.0, "", ""
    _unsent: frozenset[News] = frozenset()
    _sent_at = 0.0
    _log: deque[str] | None = None

    def __init__(
        self, lease: Lease, send: Callable[[News, bytes], None], notify: Callable[[], None] | None = None
    ) -> None:
        # kept small: one is made for every attempt
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
        """The queue that the job came from."""
        return self._lease.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._lease.attempt

    @property
    def fence(self) -> int:
        """Grows from attempt to attempt: pass it on to whatever must refuse a late writer."""
        return self._lease.fence

    @property
    def recovered(self) -> str | None:
        """Why there was an attempt before this one and how it ended (`lease_expired`, `crashed`, a failure's code …)."""
        return self._lease.recovered or None

    @property
    def trace(self) -> str:
        """The submitter's `traceparent` (W3C Trace Context); empty if it had none."""
        return self._lease.trace

    @property
    def occurrence(self) -> datetime | None:
        """The occurrence that a schedule made the job for, in UTC; None for any other job. It is the same at every attempt."""
        return (
            None
            if self._lease.occurrence_ms is None
            else datetime.fromtimestamp(self._lease.occurrence_ms / 1000, UTC)
        )

    @property
    def cancelled(self) -> bool:
        """True once the attempt is being ended (cancelled, out of time, its lease lost): clean up and return."""
        return bool(self.ending)

    @property
    def remaining(self) -> float | None:
        """Seconds until the attempt is ended for taking too long; None if its job has no timeout."""
        if self._lease.timeout_ms is None:
            return None
        return max(0.0, self._lease.timeout_ms / 1000 - (time.monotonic() - self._started))

    @property
    def deadline(self) -> datetime | None:
        """The moment of that, by this machine's clock."""
        left = self.remaining
        return None if left is None else datetime.now(UTC) + timedelta(seconds=left)

    def progress(self, fraction: float, *, stage: str = "", message: str = "") -> None:
        """Report the progress, from 0 to 1. Call it as often as you like: the latest report is sent at most 10 times a second."""
        self._done = min(max(fraction, 0.0), 1.0)
        self._stage, self._message = stage[:64] or self._stage, message[:128]
        self._report(News.PROGRESS)

    def stage(self, name: str) -> None:
        """Report the current stage, which is shown with the progress."""
        self.progress(self._done, stage=name)

    def checkpoint(self, data: Any) -> None:
        """Store `data` (JSON, at most 64 KiB) for the next attempt, which gets it as `restored`.

        It replaces the last checkpoint, is sent within 0.5 s, and is deleted when the job is completed. Raises Invalid if it
        cannot be written as JSON, or is too large.
        """
        try:
            encoded = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Invalid(f"checkpoint: this cannot be written as JSON ({error})") from None
        if len(encoded) > CHECKPOINT_MAX:
            raise Invalid(
                f"checkpoint of {len(encoded):,} bytes: at most {CHECKPOINT_MAX:,}; keep the data elsewhere and its place here"
            )
        self._send(News.CHECKPOINT, encoded)

    @property
    def restored(self) -> Any:
        """The latest checkpoint of an earlier attempt; None without one."""
        return json.loads(self._lease.checkpoint) if self._lease.checkpoint else None

    def log(self, text: str) -> None:
        """Add lines to the log of the attempt, which `sublet get` shows: its last 8 KiB are kept. `logging` is added, too."""
        if self._log is None:
            self._log = deque()
        after = time.monotonic() - self._started
        self._log.extend(f"+{after:.3f} {line}"[:1024] for line in text.splitlines() or [""])
        while len(self._log) > LOG_MAX // 16:
            self._log.popleft()
        self._report(News.LOG)

    def _report(self, news: News) -> None:
        self._unsent |= {news}
        if self._notify:
            self._notify()
        elif time.monotonic() - self._sent_at >= SEND_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send the reports that are not sent yet. The runner calls it after `notify`, and at the end."""
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
    """Return the last lines that fit."""
    return text if len(text) <= LOG_MAX else text[-LOG_MAX:].partition(b"\n")[2]


current: ContextVar[Context | None] = ContextVar("sublet_context", default=None)
"""The context of the task that is running here, if any."""


class JobLogHandler(logging.Handler):
    """Adds log records of a running task (of the standard library's `logging`) to its job; ignores all others."""

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
