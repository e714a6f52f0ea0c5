"""Submits that wait for replicas or the disk: scripts, then one WAIT or WAITAOF for all of them.

WAIT covers the last write of its connection, and a repeated submit may write nothing: so a barrier precedes it, a write
that changes no data.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from redis.exceptions import OutOfMemoryError, ResponseError

from sublet.connection.pipeline import ClientPipeline, Commands, Pipeline, Request, resolve

BARRIER = """if redis.call('HEXISTS', KEYS[1], 'seq') == 0 then return 0 end
redis.call('DEL', KEYS[1] .. ':')
return redis.call('HINCRBY', KEYS[1], 'seq', 0)"""
"""A script that writes without a change of data. A full server accepts it, and it creates no partition."""


class WaitBatcher:
    """Sends scripts with one wait for all of them, on its own connection. Scripts sent during a wait share
    the next one.
    """

    def __init__(self, pipeline: Pipeline | ClientPipeline, waits: Sequence[tuple[Any, ...]]) -> None:
        self._pipeline, self._waits = pipeline, waits
        self._queued: list[tuple[Commands, asyncio.Future[Any]]] = []
        self._in_flight: list[asyncio.Future[Any]] = []

    def send(self, scripts: Commands) -> "asyncio.Future[Any]":
        """Send scripts now, or with the next wait. The future gets two lists, the replies of these scripts
        and of the waits; or an error.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queued.append((scripts, future))
        if len(self._queued) == 1 and not self._in_flight:
            loop.call_soon(self._send_queued)
        return future

    def _send_queued(self) -> None:
        batch, self._queued = [one for one in self._queued if not one[1].done()], []
        if not batch:
            return
        self._in_flight = [future for _, future in batch]
        scripts = [command for some, _ in batch for command in some]
        commands = [*scripts, *barriers(scripts), *self._waits]
        replies: list[Any] = [None] * len(commands)
        requests: list[Request] = [
            (command, partial(replies.__setitem__, i)) for i, command in enumerate(commands)
        ]
        sizes = [len(some) for some, _ in batch]
        requests[-1] = commands[-1], lambda last: self._deliver(sizes, [*replies[:-1], last])
        self._pipeline.send(requests)

    def _deliver(self, sizes: Sequence[int], replies: Sequence[Any]) -> None:
        futures, self._in_flight = self._in_flight, []
        begin, behind = 0, replies[sum(sizes) :]
        for future, size in zip(futures, sizes, strict=True):
            resolve(future, outcome(replies[begin : begin + size], behind, len(self._waits)))
            begin += size
        self._send_queued()

    async def aclose(self) -> None:
        """Wait for all scripts, and close the connection."""
        while waiting := [
            one for one in (*self._in_flight, *(future for _, future in self._queued)) if not one.done()
        ]:
            await asyncio.wait(waiting)
        await self._pipeline.aclose()


def barriers(scripts: Commands) -> Commands:
    """Return a barrier for each partition of the scripts."""
    return [("EVAL", BARRIER, 1, base) for base in dict.fromkeys(command[3] for command in scripts)]


def outcome(scripts: Sequence[Any], behind: Sequence[Any], waits: int) -> Any:
    """Return the replies of the scripts, and of the last `waits` commands of `behind` (if a barrier failed,
    its error); or the first error of a script or the connection.

    Of several scripts, those that a full server refused do not count as errors: others may be stored.
    """
    for reply in scripts:
        if isinstance(reply, BaseException) and not (
            isinstance(reply, OutOfMemoryError) and len(scripts) > 1
        ):
            return reply
    for reply in behind:
        if isinstance(reply, BaseException) and not isinstance(reply, ResponseError):
            return reply
    wrong = next((reply for reply in behind[:-waits] if isinstance(reply, ResponseError)), None)
    return scripts, [wrong or reply for reply in behind[-waits:]]
