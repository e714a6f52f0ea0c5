"""Says that the source does not answer: once, then once a minute, and when it is back. A long outage must not fill a log."""

import logging
import time

from sublet.errors import Forbidden

log = logging.getLogger("sublet.worker.worker")

AGAIN = 60.0
"""Seconds between two reminders."""
QUIET = 1.0
"""Seconds without a failure after which an answer means that it is over: one among failures does not."""


class Outage:
    """What a worker knows of an outage, from all its loops."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._failed_at = 0.0
        self._answered = True
        self._hindered_at: float | None = None
        self._said_at = 0.0
        self._unsaid = 0

    def failed(self, what: str, error: Exception) -> None:
        """Something could not be done, for the source did not answer."""
        now = self._failed_at = time.monotonic()
        self._answered = isinstance(error, Forbidden)  # that is an answer, too
        if self._since is None:
            self._since, self._said_at = now, now
            log.warning("cannot %s: %s", what, error)
        elif now - self._said_at >= AGAIN:
            log.warning(
                "still cannot %s, since %.0f s (%d more failures): %s",
                what,
                now - self._since,
                self._unsaid,
                error,
            )
            self._said_at, self._unsaid = now, 0
        else:
            self._unsaid += 1

    def hindered(self, what: str, error: Exception) -> None:
        """Something could not be done, and yet the source is not away: no outage, and said once a minute at most."""
        now = time.monotonic()
        if self._hindered_at is None or now - self._hindered_at >= AGAIN:
            self._hindered_at = now
            log.warning("cannot %s: %s", what, error)

    @property
    def ongoing(self) -> bool:
        """Has the source not answered lately?"""
        return not self._answered

    def over(self) -> None:
        """The source has answered; that an outage is over is said when nothing fails any more."""
        now, self._answered = time.monotonic(), True
        if self._since is not None and now - self._failed_at >= QUIET:
            log.warning("the source answers again, after %.1f s", now - self._since)
            self._since, self._unsaid = None, 0
