"""Limit the bytes of request lines and headers that have not arrived completely: aiohttp limits each line,
but not their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import Problem

PIECE = 16 * 1024


@dataclass(slots=True)
class HeadBudget:
    """Counts the bytes of incomplete request lines and headers of all connections."""

    limits: Limits
    held: int = 0


@dataclass(slots=True)
class HeadMeter:
    """Counts the bytes of one connection's incomplete request line and headers."""

    budget: HeadBudget
    held: int = 0

    def add(self, size: int) -> Problem | None:
        """Add `size` bytes. Returns a problem if a limit is exceeded, else None."""
        self.held += size
        self.budget.held += size
        limits = self.budget.limits
        if self.held > limits.head:
            detail = f"URL and headers have more than {limits.head:,} bytes, the limit: send fewer or shorter headers"
            return Problem("too-many-headers", detail)
        if self.budget.held > limits.heads:
            return Problem(
                "busy",
                "too many incomplete requests are arriving at this server: send the request again later",
            )
        return None

    def clear(self) -> None:
        """Forget this connection's counted bytes, also in `budget`."""
        self.budget.held -= self.held
        self.held = 0
