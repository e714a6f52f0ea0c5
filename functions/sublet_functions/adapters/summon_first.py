"""Summon workers before a response is sent, for processes that may be frozen afterwards."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from sublet.store.source import PoolSummoner
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response

log = logging.getLogger(__name__)

SUMMON_SECONDS = 8.0
"""Most seconds by which a response waits for the summoning of workers."""


class Application(Protocol):
    """The API."""

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        ...


class SummonFirst:
    """The API, with responses, except streams, that wait up to 8 s for the summoning that their requests began."""

    def __init__(self, application: Application, summoner: PoolSummoner) -> None:
        self._application = application
        self._summoner = summoner
        summoner.prompt = True

    async def answer(self, request: Request) -> Response:
        """Answer one request; raises only CancelledError."""
        return await summon_first(self._summoner, self._application.answer(request))


async def summon_first(summoner: PoolSummoner | None, answering: Awaitable[Response]) -> Response:
    """Await a response, and unless it is a stream, for at most 8 s the summoning that its request began; return
    the response.
    """
    if summoner is None:
        return await answering
    before = summoner.nudged
    response = await answering
    if summoner.nudged != before and isinstance(response.body, bytes):
        try:
            async with asyncio.timeout(SUMMON_SECONDS):
                await summoner.finish()
        except TimeoutError:
            log.warning(
                "workers could not be summoned within %g s: the next submit or tick tries again",
                SUMMON_SECONDS,
            )
        except asyncio.CancelledError:
            await response.discard()
            raise
    return response
