"""For a process that may be frozen between two requests: what one of them sets off is seen to before it is answered."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from sublet.store.source import PoolSummoner
from sublet_functions.api.request import Reply, Request
from sublet_functions.server.writer import undo

log = logging.getLogger(__name__)

SETTLING = 8.0
"""Seconds that an answer may be kept back until the workers are summoned that the request calls for."""


class Core(Protocol):
    """What answers."""

    async def answer(self, request: Request) -> Reply:
        """Answer one request."""
        ...


class Prompt:
    """An API whose answers are kept back until the workers are summoned that the requests call for. Streams are not."""

    def __init__(self, core: Core, summoner: PoolSummoner) -> None:
        self._core, self._summoner = core, summoner
        summoner.prompt = True

    async def answer(self, request: Request) -> Reply:
        """Answer one request; raises nothing but CancelledError."""
        return await promptly(self._summoner, self._core.answer(request))


async def promptly(summoner: PoolSummoner | None, answering: Awaitable[Reply]) -> Reply:
    """An answer, once what its request has set off is done, for some seconds at most; one that set off nothing, at once."""
    if summoner is None:
        return await answering
    before = summoner.nudged
    reply = await answering
    if summoner.nudged != before and isinstance(reply.body, bytes):
        try:
            async with asyncio.timeout(SETTLING):
                await summoner.settle()
        except TimeoutError:
            log.warning("the workers that were to be summoned were not reached in %g s", SETTLING)
        except asyncio.CancelledError:
            await undo(reply)  # there is an answer, and nobody who takes it
            raise
    return reply
