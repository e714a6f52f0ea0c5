"""A worker's events: text on a terminal without --json, else JSON lines; without tokens and payloads."""

import asyncio
import json
import logging
import re
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from pydantic_core import to_json

from sublet.cli.output import clean, duration, escaped, fit, paint, put
from sublet.model import Lease, format_moment
from sublet.worker.summary import COUNTERS, Summary

log = logging.getLogger(__name__)

COLOURS = {"ready": "bold", "started": "dim", "completed": "green", "failed": "red", "cancelled": "yellow", "released": "yellow", "suspended": "yellow", "refused": "yellow",
           "lost": "yellow", "crashed": "red", "stalled": "red", "starved": "yellow", "stuck": "red", "lag": "yellow", "warning": "yellow",
           "draining": "yellow", "stopping": "yellow"}  # fmt: skip
UNCUT = ("warning", "stalled", "starved")
ENDS = (*COUNTERS, "lost")
HEAD = 54
_ANSWER = re.compile(r"(.*): (?:scheduled (\d+)|(queued|dead|cancelled|LEASE_LOST|NOT_FOUND))", re.DOTALL)


class EventPrinter:
    """Prints a worker's events, those of one turn of the event loop in one write; if quiet, only the summary.
    If the reader of the stream has gone, sends SIGTERM to this process.
    """

    def __init__(self, stream: TextIO, as_json: bool, quiet: bool) -> None:
        self._stream, self._json, self._quiet = stream, as_json, quiet
        self._lines: list[str] = []
        self._started: dict[tuple[str, int], float] = {}
        self._unwritten = self._stopping = False
        self._moment = (0, "")

    def print_event(self, event: str, lease: Lease | None, detail: str) -> None:
        """Print an event soon; `lease` is that of its job, if it has one."""
        self._stopping = self._stopping or event == "stopping"
        if self._quiet:
            return
        self._lines.append(
            self._as_json(event, lease, detail) if self._json else self._as_text(event, lease, detail)
        )
        if len(self._lines) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        try:
            self._write()
        except BrokenPipeError:
            self._quiet = True
            if not self._stopping:  # a second signal would take the grace away
                signal.raise_signal(signal.SIGTERM)
        except OSError as error:
            # the jobs matter more than the output
            if not self._unwritten:
                log.warning("cannot write to stdout, continuing without it: %s", error.strerror or error)
            self._unwritten = True
        else:
            self._unwritten = False

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        put(*lines, stream=self._stream)
        self._stream.flush()

    def print_summary(self, summary: Summary) -> None:
        """Print the summary of a run now. Raises OSError."""
        counts = {name: getattr(summary, name) for name in COUNTERS}
        if self._json:
            entry = {
                "event": "summary",
                "at": self._now(),
                **counts,
                "seconds": summary.seconds,
                "stalled": summary.stalled,
            }
            self._lines.append(as_json(entry))
        else:
            shown = " · ".join(
                f"{count:,} {name}" for name, count in counts.items() if count or name == "completed"
            )
            self._lines.append(f"{shown} in {duration(summary.seconds)}")
            if summary.stalled:
                self._lines.append(
                    "stalled: jobs ran, but none finished for too long; exit 1, so that this worker is replaced"
                )
        self._write()

    def _as_json(self, event: str, lease: Lease | None, detail: str) -> str:
        entry: dict[str, object] = {"event": event, "at": self._now()}
        if lease:
            entry |= {"id": lease.id, "task": lease.task, "queue": lease.queue, "attempt": lease.attempt}
        answer = _ANSWER.fullmatch(detail)
        if answer:
            detail, due, state = answer.groups()
            entry |= {"state": "scheduled", "due_at": rfc3339(int(due) / 1000)} if due else {"state": state}
        entry["detail"] = detail
        return as_json(entry)

    def _now(self) -> str:
        now = int(time.time() * 1000)
        if now != self._moment[0]:
            self._moment = now, rfc3339(now / 1000)
        return self._moment[1]

    def _as_text(self, event: str, lease: Lease | None, detail: str) -> str:
        head = f"{time.strftime('%H:%M:%S')}  {paint(event.ljust(10), COLOURS.get(event, ''), self._stream)}"
        if lease is None:
            return f"{head}  {clean(detail) if event in UNCUT else fit(clean(detail), 22)}"
        why, then = self._message(event, lease, clean(detail))
        why = fit(why, HEAD + len(then))
        return f"{head}  {lease.task.ljust(16)}  {short(lease.id)}  {why}{then}".rstrip()

    def _message(self, event: str, lease: Lease, detail: str) -> tuple[str, str]:
        if event == "started":
            self._started[lease.id, lease.attempt] = time.monotonic()
            return f"attempt {lease.attempt}, after {detail or 'another'}" if lease.attempt > 1 else "", ""
        if event not in ENDS:
            return detail, ""
        took = duration(time.monotonic() - self._started.pop((lease.id, lease.attempt), time.monotonic()))
        if event == "completed":
            return took, ""
        answer = _ANSWER.fullmatch(detail)
        if answer is None:
            return detail, ""
        why = answer[1].replace(" ", ": ", 1) if event in ("failed", "cancelled") else answer[1]
        return why, f" · again in {duration(int(answer[2]) / 1000 - time.time())}" if answer[
            2
        ] else f" · {answer[3]}"


def short(job_id: str) -> str:
    """Return a job's id in 12 columns: padded, or … and its end, which suffices to find it."""
    return job_id.rjust(12) if len(job_id) <= 12 else f"…{job_id[-11:]}"


def as_json(entry: Mapping[str, object]) -> str:
    """Return a mapping as JSON on one line."""
    try:
        return escaped(to_json(entry).decode())
    except ValueError:
        return escaped(json.dumps(entry, separators=(",", ":")))


def rfc3339(seconds: float) -> str:
    """Format seconds since 1970 as RFC 3339 with milliseconds."""
    return format_moment(datetime.fromtimestamp(seconds, UTC))


class OneLineFormatter(logging.Formatter):
    """Formats a log record on one line, with its exception's type and message."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the record on one line, as text or JSON."""
        message = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            message += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        message = clean(" ".join(message.split()))
        if self._json:
            return json.dumps(
                {
                    "level": record.levelname.lower(),
                    "at": rfc3339(time.time()),
                    "logger": record.name,
                    "message": message,
                }
            )
        return f"{time.strftime('%H:%M:%S')}  {record.levelname.lower()}  {message}"


def log_to_stderr(as_json: bool, debug: bool = False) -> None:
    """Log to stderr, one line per record from INFO on (`debug`: also below, if a logger's own level allows
    it), unless the app configured logging.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(as_json))
    handler.setLevel(logging.DEBUG if debug else logging.INFO)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
