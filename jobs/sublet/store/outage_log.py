"""Log an outage of the job source (Redis or the HTTP API) at its start, once a minute, and at its end."""

import logging
import time

from sublet.errors import Forbidden

log = logging.getLogger("sublet.worker.worker")

AGAIN = 60.0
SOON = 0.1
QUIET = 1.0
"""An answer ends an outage if no call has failed for so many seconds."""


class OutageLog:
    """Logs the outages that one caller notices."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._failed_at = 0.0
        self._answered = True
        self._hindered_at: float | None = None
        self._logged_at = 0.0
        self._unlogged = 0

    def failed(self, what: str, error: Exception) -> None:
        """Record a failed call; log the first, then one a minute. `what` completes "cannot …". `Forbidden` counts as an
        answer.
        """
        now = self._failed_at = time.monotonic()
        self._answered = isinstance(error, Forbidden)
        if self._since is None:
            self._since = self._logged_at = now
            log.warning("cannot %s: %s", what, error)
        elif now - self._logged_at >= AGAIN:
            log.warning(
                "still cannot %s, for %.0f s now (%d more failures): %s",
                what,
                now - self._since,
                self._unlogged,
                error,
            )
            self._logged_at, self._unlogged = now, 0
        else:
            self._unlogged += 1

    def hindered(self, what: str, error: Exception) -> None:
        """Log an error other than an outage, at most once a minute. `what` completes "cannot …"."""
        now = time.monotonic()
        if self._hindered_at is None or now - self._hindered_at >= AGAIN:
            self._hindered_at = now
            log.warning("cannot %s: %s", what, error)

    def pause(self, most: float) -> float:
        """Return after how many seconds to send a call again: half of the outage so far, at least 0.1 s, at
        most `most`.
        """
        lasted = time.monotonic() - self._since if self._since is not None else 0.0
        return min(most, max(SOON, lasted / 2))

    @property
    def ongoing(self) -> bool:
        """Whether the last recorded call got no answer."""
        return not self._answered

    def over(self) -> None:
        """Record an answer. If no call has failed for a second, end the outage, and log that."""
        now = time.monotonic()
        self._answered = True
        if self._since is not None and now - self._failed_at >= QUIET:
            log.warning("calls are answered again, after %.1f s", now - self._since)
            self._since, self._unlogged = None, 0
