"""Says that the source does not answer: once, then once a minute, and when it is back. A long outage must not fill a log."""

import logging
import time

log = logging.getLogger("jobs.worker")

AGAIN = 60.0
"""Seconds between two reminders."""


class Outage:
    """What a worker knows of an outage, from all its loops."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said_at = 0.0
        self._unsaid = 0

    def failed(self, what: str, error: Exception) -> None:
        """Something could not be done, for the source did not answer."""
        now = time.monotonic()
        if self._since is None:
            self._since, self._said_at = now, now
            log.warning("cannot %s: %s", what, error)
        elif now - self._said_at >= AGAIN:
            log.warning("still cannot %s, since %.0f s (%d more failures): %s", what, now - self._since, self._unsaid, error)
            self._said_at, self._unsaid = now, 0
        else:
            self._unsaid += 1

    @property
    def ongoing(self) -> bool:
        """Has the source not answered lately?"""
        return self._since is not None

    def over(self) -> None:
        """The source has answered."""
        if self._since is not None:
            log.warning("the source answers again, after %.1f s", time.monotonic() - self._since)
            self._since, self._unsaid = None, 0
