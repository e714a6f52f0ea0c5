"""Scripts that are waited for: what goes out together with one WAIT behind it, and what its replies say.

WAIT and WAITAOF count who has got the last write *of their own connection*, so scripts and waits share one. A repeated submit
is answered without a write, and from Redis 7.2 on a wait behind it would prove nothing: so a write that changes nothing stands
between.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from redis.exceptions import OutOfMemoryError, ResponseError

from sublet.connection.pipeline import Ask, Commands, Lent, Line, resolve

BARRIER = """if redis.call('HEXISTS', KEYS[1], 'seq') == 0 then return 0 end
redis.call('DEL', KEYS[1] .. ':')
return redis.call('HINCRBY', KEYS[1], 'seq', 0)"""
"""A write that changes nothing, also on a full server: what waits behind it waits for all that was written before. A partition
in which no job was ever stored has nothing to wait for, and is not made by this."""


class Together:
    """Scripts that are waited for: those of one turn go out together over a line of their own, the waits once behind all.

    While the server waits, it hears nothing else on that line. What comes meanwhile goes out together when it has answered.
    """

    def __init__(self, line: Line | Lent, waits: Sequence[tuple[Any, ...]]) -> None:
        self._line, self._waits = line, waits
        self._next: list[tuple[Commands, asyncio.Future[Any]]] = []
        self._under_way: list[asyncio.Future[Any]] = []

    def ask(self, scripts: Commands) -> "asyncio.Future[Any]":
        """Send scripts. The future has their replies, and those to the waits; or the error of a script, or of the connection."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._next.append((scripts, future))
        if len(self._next) == 1 and not self._under_way:
            loop.call_soon(self._go)
        return future

    def _go(self) -> None:
        asked, self._next = [one for one in self._next if not one[1].done()], []  # some may have left
        if not asked:
            return
        self._under_way = [future for _, future in asked]
        scripts = [command for some, _ in asked for command in some]
        commands = [*scripts, *barriers(scripts), *self._waits]
        replies: list[Any] = [None] * len(commands)
        asks: list[Ask] = [(command, partial(replies.__setitem__, i)) for i, command in enumerate(commands)]
        sizes = [len(some) for some, _ in asked]
        asks[-1] = commands[-1], lambda last: self._told(sizes, [*replies[:-1], last])
        self._line.send(asks)

    def _told(self, sizes: Sequence[int], replies: Sequence[Any]) -> None:
        futures, self._under_way = self._under_way, []
        begin, behind = 0, replies[sum(sizes) :]
        for future, size in zip(futures, sizes, strict=True):
            resolve(future, sorted_out(replies[begin : begin + size], behind, len(self._waits)))
            begin += size
        self._go()

    async def aclose(self) -> None:
        """Wait for what is under way, and let go of the connection."""
        while waiting := [
            one for one in (*self._under_way, *(future for _, future in self._next)) if not one.done()
        ]:
            await asyncio.wait(waiting)
        await self._line.aclose()


def barriers(scripts: Commands) -> Commands:
    """What stands between scripts and a wait: a write on each of their bases, as one of these may not be there."""
    return [("EVAL", BARRIER, 1, base) for base in dict.fromkeys(command[3] for command in scripts)]


def sorted_out(scripts: Sequence[Any], behind: Sequence[Any], waits: int) -> Any:
    """The replies to scripts and to the waits, which are the last ones behind them; or the first error that counts.

    That a full server refused one of several scripts does not: others may have found room.
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
