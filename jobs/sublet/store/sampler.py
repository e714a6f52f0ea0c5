"""Record numbers for the history of jobs, in the background."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from sublet.errors import JobsError
from sublet.operations.operations import Operations
from sublet.protocol.plan import Plan

PATIENCE = 1.0
"""Most seconds that `aclose` waits for a sample."""


class Sampler:
    """Records samples of the numbers of jobs, at most one a minute."""

    def __init__(self, follow: Callable[[Plan[None]], Awaitable[None]], operations: Operations) -> None:
        self._follow, self._operations = follow, operations
        self._sampling: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Record a sample in the background if one is due."""
        if self._sampling is None and time.monotonic() >= self._operations.sample_at:
            self._sampling = asyncio.create_task(self._take())

    async def _take(self) -> None:
        with suppress(JobsError):  # the history has a gap; the worker's own calls report it
            await self._follow(self._operations.sample())
        self._sampling = None

    async def aclose(self) -> None:
        """Wait for a sample under way, for at most a second; then cancel it."""
        if self._sampling:
            sampling = self._sampling
            await asyncio.wait([sampling], timeout=PATIENCE)
            sampling.cancel()
            await asyncio.wait([sampling])
