"""Wait until the job source (Redis or the HTTP API) answers, and log the wait."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sublet.errors import Unavailable
from sublet.store import outage_log

log = logging.getLogger("sublet.worker.worker")

T = TypeVar("T")

PAUSE = 0.5


async def until_ready(
    call: Callable[[], Awaitable[T]], address: str, seconds: float | None
) -> tuple[T, float]:
    """Repeat `call` while it raises Unavailable; return its result and the seconds waited. Log the wait, with
    `address`.

    Raises Unavailable after `seconds` (None: no limit; the first call may take longer), at once if it is
    `lasting`.
    """
    began = time.monotonic()
    waiting = _Waiting(address, began, None if seconds is None else began + seconds)
    while True:
        try:
            result = await waiting.bounded(call())
        except Unavailable as error:
            waiting.failed(error)
            await asyncio.sleep(PAUSE)
        else:
            return result, waiting.over()


class _Waiting:
    def __init__(self, address: str, began: float, until: float | None) -> None:
        self._address, self._began, self._until = address, began, until
        self._server = "the HTTP API" if address.startswith("http") else "Redis"
        self._last: Unavailable | None = None
        self._logged_at = 0.0

    async def bounded(self, answer: Awaitable[T]) -> T:
        if self._last is None or self._until is None:
            return await answer
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                return await answer
        except TimeoutError:
            raise self._last from None

    def failed(self, error: Unavailable) -> None:
        now = time.monotonic()
        if error.lasting or (self._until is not None and now + PAUSE > self._until):
            raise error
        where = self._server if self._address in str(error) else f"{self._server} at {self._address}"
        if self._last is None:
            limit = "" if self._until is None else f" for up to {self._until - self._began:g} s"
            text = str(error)
            end = f"{text}{' ' if text.endswith(('?', '.')) else '. '}The worker starts when it answers"
            log.warning("waiting%s for %s: %s", limit, where, end)
            self._logged_at = now
        elif now - self._logged_at >= outage_log.AGAIN:
            log.warning("still waiting for %s, for %.0f s now: %s", where, now - self._began, error)
            self._logged_at = now
        self._last = error

    def over(self) -> float:
        if self._last is None:
            return 0.0
        waited = time.monotonic() - self._began
        log.warning("%s answers, after %.1f s", self._server, waited)
        return waited
