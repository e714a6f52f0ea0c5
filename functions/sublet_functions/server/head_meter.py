"""Bounds the bytes of unfinished request heads: aiohttp bounds each line and the number of lines, not their sum."""

from __future__ import annotations

from dataclasses import dataclass

from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import Problem

PIECE = 16 * 1024
"""Bytes counted at a time."""


@dataclass(slots=True)
class HeadBudget:
    """Bytes of the unfinished heads of all connections."""

    limits: Limits
    held: int = 0


@dataclass(slots=True)
class HeadMeter:
    """Counts the bytes of one connection's unfinished head."""

    budget: HeadBudget
    held: int = 0

    def add(self, size: int) -> Problem | None:
        """Count bytes. Returns a problem above a limit."""
        self.held += size
        self.budget.held += size
        limits = self.budget.limits
        if self.held > limits.head:
            detail = (
                f"the headers have more than {limits.head:,} bytes, the limit: send fewer, or shorter ones"
            )
            return Problem("too-many-headers", detail)
        if self.budget.held > limits.heads:
            return Problem(
                "busy",
                "too many incomplete requests are arriving at this server: send the request again later",
            )
        return None

    def clear(self) -> None:
        """Count from 0 again."""
        self.budget.held -= self.held
        self.held = 0
