"""What a running task may ask, tell and raise."""

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
"""Bytes that a checkpoint may have, as JSON."""
LOG_MAX = 8 * 1024
"""Bytes of log that are kept of one attempt: the last ones."""
OFTEN = 0.1
"""Seconds between two words of progress or log that are passed on at once; what comes sooner waits for the next, or `flush`."""


class Snooze(Exception):
    """Raise it in a task to give the job back for `delay` (seconds, or a timedelta); the try does not count.

    After 100 in a row one does. Raises ValueError for a delay that is none, which fails the attempt.
    """

    delay = 0.0
    reason = "snoozed"

    def __init__(self, delay: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.delay, self.reason = checked_delay(delay), str(reason)


class Discard(Exception):
    """Raise it in a task to bury the job at once, whatever tries are left."""

    reason = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


def checked_delay(delay: float | timedelta) -> float:
    """A delay in seconds. Raises ValueError for what is none."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e9:
        raise ValueError(f"delay {delay!r}: use a number of seconds from 0 to 1e9, or a timedelta")
    return float(seconds)


class Context:
    """One attempt, as its task sees it. A task that takes a `Context` first is given it."""

    ending = ""
    """Why the attempt is being ended before its task is done: `timed_out`, `cancelled`, `lost`, `stopping`; else empty."""
    _done, _stage, _message = 0.0, "", ""
    _unsaid: frozenset[News] = frozenset()
    _said_at = 0.0
    _log: deque[str] | None = None

    def __init__(
        self, lease: Lease, tell: Callable[[News, bytes], None], hear: Callable[[], None] | None = None
    ) -> None:
        self._lease, self._tell, self._hear = lease, tell, hear  # and no more: one is made for every attempt
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
        """Say how far the work is, from 0 to 1. The latest word is sent a few times a second at most: call it as you like."""
        self._done = min(max(fraction, 0.0), 1.0)
        self._stage, self._message = stage[:64] or self._stage, message[:128]
        self._say(News.PROGRESS)

    def stage(self, name: str) -> None:
        """Say what the task is at now; it is shown with the progress."""
        self.progress(self._done, stage=name)

    def checkpoint(self, data: Any) -> None:
        """Leave `data` (JSON, at most 64 KiB) for the next attempt, should this one not be the last: it finds it as `restored`.

        It replaces what was left before, is sent within half a second, and is forgotten when the job is completed.
        Raises Invalid for what is no JSON, or too large.
        """
        try:
            said = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Invalid(f"checkpoint: this cannot be written as JSON ({error})") from None
        if len(said) > CHECKPOINT_MAX:
            raise Invalid(
                f"checkpoint of {len(said):,} bytes: at most {CHECKPOINT_MAX:,}; keep the data elsewhere and its place here"
            )
        self._tell(News.CHECKPOINT, said)

    @property
    def restored(self) -> Any:
        """What the latest checkpoint of an earlier attempt left; None if there was none."""
        return json.loads(self._lease.checkpoint) if self._lease.checkpoint else None

    def log(self, text: str) -> None:
        """Keep a line with the job, for `sublet get`: the last 8 KiB of an attempt are kept. `logging` does the same."""
        if self._log is None:
            self._log = deque()
        after = time.monotonic() - self._started
        self._log.extend(f"+{after:.3f} {line}"[:1024] for line in text.splitlines() or [""])
        while len(self._log) > LOG_MAX // 16:
            self._log.popleft()
        self._say(News.LOG)

    def _say(self, news: News) -> None:
        self._unsaid |= {news}
        if self._hear:
            self._hear()
        elif time.monotonic() - self._said_at >= OFTEN:
            self.flush()

    def flush(self) -> None:
        """Pass on what was said and not told yet. Whoever runs the task calls it when it hears of news, and at the end."""
        if not self._unsaid:
            return
        self._said_at = time.monotonic()
        unsaid, self._unsaid = self._unsaid, frozenset()
        if News.PROGRESS in unsaid:
            news: dict[str, Any] = {
                "fraction": round(self._done, 4),
                "stage": self._stage,
                "message": self._message,
            }
            self._tell(
                News.PROGRESS,
                json.dumps({name: value for name, value in news.items() if value != ""}).encode(),
            )
        if News.LOG in unsaid:
            self._tell(News.LOG, _tail("\n".join(list(self._log or ())).encode("utf-8", "replace")))


def _tail(text: bytes) -> bytes:
    """The last lines that fit."""
    return text if len(text) <= LOG_MAX else text[-LOG_MAX:].partition(b"\n")[2]


current: ContextVar[Context | None] = ContextVar("sublet_context", default=None)
"""The attempt whose task is running here, if one is."""


class KeepLog(logging.Handler):
    """Keeps what a task logs (with the standard library's `logging`) with its job; deaf to everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        context = current.get()
        if context is None or record.__dict__.get("sublet_kept"):
            return
        record.__dict__["sublet_kept"] = True  # several workers in one process listen, each with one of these
        try:
            context.log(f"{record.levelname.lower()} {self.format(record)}")
        except Exception:  # noqa: BLE001  # a broken log line must not fail the task; logging's own way of saying so
            self.handleError(record)
