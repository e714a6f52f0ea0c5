"""Copy the `logging` records of running tasks to the logs of their attempts."""

import logging
import os

from sublet.context import current
from sublet.errors import Invalid

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class JobLogHandler(logging.Handler):
    """Adds the `logging` records of a running task to its attempt's log, each once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record to the running attempt's log; outside of a task, ignore it."""
        context = current.get()
        if context is None or record.__dict__.get("sublet_kept"):
            return
        record.__dict__["sublet_kept"] = True  # each worker of the process has a handler
        try:
            context.log(f"{record.levelname.lower()} {self.format(record)}")
        except Exception:  # noqa: BLE001  # a record that cannot be formatted must not fail the task
            self.handleError(record)


def job_log_level() -> str:
    """Return the log level in SUBLET_LOG_LEVEL in upper case; empty if it is not set. Raises Invalid for an
    unknown one.
    """
    level = os.environ.get("SUBLET_LOG_LEVEL", "")
    if level and level.upper() not in LOG_LEVELS:
        raise Invalid(f"SUBLET_LOG_LEVEL={level[:40]!r}: use {', '.join(LOG_LEVELS).lower()}")
    return level.upper()


def keep_logs() -> JobLogHandler:
    """Add a handler to the root logger, which copies log records of running tasks to their attempts' logs;
    return it.

    SUBLET_LOG_LEVEL is the lowest level that is copied (default: INFO). Only if it is set, the root logger's
    level is lowered to it. Raises Invalid.
    """
    level, root = job_log_level(), logging.getLogger()
    handler = JobLogHandler(level or logging.INFO)
    if level and root.level > handler.level:
        root.setLevel(handler.level)
    root.addHandler(handler)
    return handler
