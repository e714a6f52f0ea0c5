"""The stream of moves, for any number of listeners: one blocking read a process tells them all that there is more.

Each listener reads its own pages, after the place where it is, so one that is slow keeps nothing in memory and nobody waiting.
Redis's ids make that exact: a page begins with the very entry that the listener had last, or tells that it is gone.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from sublet.connection.blocking import Ear, Run, blocking_line
from sublet.connection.routing import Routes
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.errors import Invalid
from sublet.model import State
from sublet.protocol import keys
from sublet.protocol.reads import pairs, together
from sublet.protocol.scripts import Call

PAGE = 500
"""Events that one page holds, at most."""
SPACING = 0.02
"""Seconds between two blocking reads: what happens meanwhile is one page, not a page each."""
TURNS = 4
"""Listeners that are told something in one turn of the event loop; what others ask of this process goes on between."""
KEPT_SECONDS = 1.0
"""How long a full page is kept for listeners who come by the same place: a thousand who read all of it do so side by side."""
KEPT_PAGES = 64
"""Pages that are kept at most."""
REST = 0.5
"""Seconds to rest after Redis failed a blocking read; the listeners' own reads tell the world about it."""

Mark = tuple[int, int]
"""One entry of a partition's stream: Redis's id, in two numbers."""
Cursor = tuple[Mark | None, ...]
"""Where a listener is: the last entry that it has of each partition; None for before the oldest that is kept."""

LATEST_MS = 253_402_300_799_999
"""The last moment that a calendar has; a stranger may have written an id beyond it, and those after it grow on."""
NOTHING: Mark = (0, 0)
"""Before the first entry there ever was."""

_MARK = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class Move(NamedTuple):
    """One move of up to ten jobs. `id` is where a listener is who has it, and all before it."""

    id: str
    at_ms: int
    jobs: tuple[str, ...]
    state: State
    code: str


@dataclass(slots=True)
class Moves:
    """One page: the moves after a cursor, in their order, and where to go on."""

    moves: list[Move]
    begin: Cursor
    """Where the page begins: at the cursor that was asked for, unless something was missed."""
    cursor: Cursor
    missed: bool
    """Some moves after that cursor are no longer kept, or it is not of this stream at all."""
    more: bool
    """There may be more already: go on at once."""
    heard: int
    """What to wait with for more."""
    told: bytes | None = None
    """All of it as listeners are told it, once one of them has made that."""


class Found(NamedTuple):
    """What one partition's stream holds after a mark: where it goes on, its entries, and whether some are gone."""

    begin: Mark | None
    entries: list[tuple[Mark, dict[str, bytes]]]
    missed: bool


class Tail:
    """Hears of every move. Belongs to one event loop; connects when somebody waits, and reads while somebody does."""

    def __init__(
        self, settings: Settings, run: Run, client: Any = None, routes: Routes | None = None
    ) -> None:
        self._client = None if routes else client or connect(settings, blocking=True)
        self._run = run
        self._bases = [keys.base(settings.namespace, p) for p in range(settings.partitions)]
        self._lines = (
            [Ear(routes, base) for base in self._bases]
            if routes
            else [blocking_line(settings, self._client, client)]
        )
        self._following: list[asyncio.Task[None] | None] = [None] * len(self._lines)
        self._newest: dict[str, bytes] = {}
        self.heard = 0
        """How often there was news."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._reads: dict[tuple[Cursor, int, int], asyncio.Future[Moves]] = {}
        self._kept: dict[tuple[Cursor, int], Moves] = {}
        self.turn = asyncio.Semaphore(TURNS)
        """Held by a listener while it makes what it says."""
        self.listeners: WeakSet[Any] = WeakSet()
        """The streams that are open: each is gone with its last holder, whether or not it was ever begun or ended in order."""
        self.closed = False
        """It is over: nobody waits any more."""

    def cursor(self, text: str) -> Cursor:
        """The place that an id names; `0` is before the oldest that is kept. Raises Invalid for what can be no id of ours."""
        words = text.split(",") if text != "0" else ["0"] * len(self._bases)
        if len(words) != len(self._bases) or not all(map(_is_mark, words)):
            raise Invalid(
                f"event id {text[:80]!r}: use the id of an event, the cursor of a page, or 0 for the oldest kept"
            )
        return tuple(None if word == "0" else _id(word) for word in words)

    async def now(self) -> Cursor:
        """The place of a listener who wants what is to come."""
        newest = await asyncio.gather(*(self._run(_newest(base)) for base in self._bases))
        return tuple(newest)

    async def read(self, after: Cursor, count: int = PAGE) -> Moves:
        """The moves after a place. Listeners at the same place share one read. Raises Unavailable."""
        kept = self._kept.get((after, count))
        if kept:
            return kept
        # With what was heard so far: a read that began before the last news came is not the one to share.
        asked = (after, count, self.heard)
        reading = self._reads.get(asked)
        if reading is None:
            reading = self._reads[asked] = asyncio.ensure_future(self._read(*asked))
            reading.add_done_callback(partial(self._done, asked))
        return await asyncio.shield(reading)

    def _done(self, asked: tuple[Cursor, int, int], reading: "asyncio.Future[Moves]") -> None:
        del self._reads[asked]
        if (
            reading.cancelled() or reading.exception()
        ):  # those who are still there have it; they may all have left
            return
        page, (after, count, _) = reading.result(), asked
        if page.more and len(self._kept) < KEPT_PAGES:  # full: what follows this place stays the same
            self._kept[after, count] = page
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._kept.pop, (after, count), None)

    async def _read(self, after: Cursor, count: int, heard: int) -> Moves:
        looks = (self._look(base, mark, count) for base, mark in zip(self._bases, after, strict=True))
        found = await asyncio.gather(*looks)
        at = [one.begin for one in found]
        begin, moves = tuple(at), []
        rows = sorted((mark, p) for p, one in enumerate(found) for mark, _ in one.entries)
        fields = [dict(one.entries) for one in found]
        for mark, p in rows[:count]:
            at[p] = mark
            move = _move(show(at), mark, fields[p][mark])
            if move:
                moves.append(move)
        more = len(rows) > count or any(len(one.entries) == count for one in found)
        return Moves(moves, begin, tuple(at), any(one.missed for one in found), more, heard)

    async def _look(self, base: str, after: Mark | None, count: int) -> Found:
        found: Found = await self._run(look(base, after, count))
        if after == NOTHING and found.entries and await self._run(_trimmed(base)):
            return Found(None, found.entries, True)
        return found

    async def wait(self, heard: int, seconds: float) -> bool:
        """Wait, at most so long, until there is more than a page had that was read at `heard`. True: look again."""
        if self.heard != heard or self.closed:
            return True
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(told)
        for i, line in enumerate(self._lines):
            if (following := self._following[i]) is None or following.done():
                bases = self._bases if len(self._lines) == 1 else [self._bases[i]]
                self._following[i] = asyncio.create_task(
                    self._follow(line, [keys.events(base) for base in bases])
                )
        try:
            async with asyncio.timeout(seconds):
                await told
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting.discard(told)

    async def _follow(self, line: Any, streams: Sequence[str]) -> None:
        """Read streams while somebody waits. A blocking read is never cut short, whoever goes."""
        while self._waiting:
            looks = [("XREVRANGE", key, "+", "-", "COUNT", 1) for key in streams]
            newest = await asyncio.gather(*_ask(line, *looks))
            failed = any(isinstance(reply, Exception) for reply in newest)
            if not failed:
                self._hear(
                    {
                        key: reply[0][0] if reply else b"0-0"
                        for key, reply in zip(streams, newest, strict=True)
                    }
                )
                failed = not await self._block(line, streams)
            await asyncio.sleep(REST if failed else SPACING)

    async def _block(self, line: Any, streams: Sequence[str]) -> bool:
        """Read until something comes after what is known. False if Redis failed."""
        known = [self._newest[key] for key in streams]
        found = await _ask(
            line, ("XREAD", "BLOCK", BLOCK_SECONDS * 1000, "COUNT", 1, "STREAMS", *streams, *known)
        )[0]
        if found and not isinstance(found, Exception):
            self._hear({key.decode(): entries[0][0] for key, entries in found})
        return not isinstance(found, Exception)

    def _hear(self, newest: dict[str, bytes]) -> None:
        if newest.items() - self._newest.items():
            self._newest |= newest
            self.heard += 1
            self._wake()

    def _wake(self) -> None:
        for told in self._waiting:
            if not told.done():
                told.set_result(None)

    def close(self) -> None:
        """Tell all who wait that it is over; they must not wait again."""
        self.closed = True
        self._wake()

    async def aclose(self) -> None:
        """Stop listening, and let go of the connections."""
        self.close()
        ends: list[asyncio.Future[Any]] = [*self._reads.values(), *filter(None, self._following)]
        for following in filter(None, self._following):
            following.cancel()
        if ends:
            await asyncio.wait(ends)
        await asyncio.gather(*(line.aclose(at_once=True) for line in self._lines))
        if self._client:
            await self._client.aclose()


def show(cursor: Iterable[Mark | None]) -> str:
    """A place as text: one stream id per partition."""
    return ",".join("0" if mark is None else f"{mark[0]}-{mark[1]}" for mark in cursor)


def look(base: str, after: Mark | None, count: int) -> Call[Found]:
    """Up to `count` entries of a stream after a mark, and whether there were more once."""
    key = keys.events(base)

    def read(reply: Sequence[Any]) -> Found:
        entries, oldest, newest = (
            [(_id(entry[0]), pairs(entry[1])) for entry in part or ()] for part in reply
        )
        if after is None:
            return Found(None if newest else NOTHING, entries[:count], False)
        if (
            entries and entries[0][0] == after
        ):  # the one that the listener had last is there: what follows follows it
            return Found(after, entries[1:], False)
        if after != NOTHING and (
            not newest or after > newest[0][0]
        ):  # another stream, or one that lost its end
            return Found(newest[0][0] if newest else NOTHING, [], True)
        if after != NOTHING and after < oldest[0][0]:
            return Found(None, entries[:count], True)
        return Found(after, entries[:count], False)

    start = "-" if after is None else show([after])
    commands = [("XRANGE", key, start, "+", "COUNT", count + 1), ("XRANGE", key, "-", "+", "COUNT", 1)]
    return together([*commands, ("XREVRANGE", key, "+", "-", "COUNT", 1)], read)


def _newest(base: str) -> Call[Mark]:
    command = ("XREVRANGE", keys.events(base), "+", "-", "COUNT", 1)
    return Call((command,), lambda reply: _id(reply[0][0]) if reply else NOTHING)


def _trimmed(base: str) -> Call[bool]:
    """Has this stream ever let go of an entry?"""

    def read(reply: Any) -> bool:
        said = pairs(reply)
        return int(said.get("entries-added", said["length"])) > int(said["length"])

    return Call((("XINFO", "STREAM", keys.events(base)),), read)


def _is_mark(word: str) -> bool:
    return word == "0" or (_MARK.fullmatch(word) is not None and max(_id(word)) < 2**64)


def _id(text: bytes | str) -> Mark:
    ms, number = (text.decode() if isinstance(text, bytes) else text).split("-")
    return int(ms), int(number)


def _move(id_: str, mark: Mark, fields: dict[str, bytes]) -> Move | None:
    """The move that an entry tells of; None for an entry that none of our scripts has written."""
    try:
        jobs = tuple(fields["jobs"].decode().split(" "))
        state, code = State(fields["state"].decode()), fields["code"].decode()
    except (KeyError, ValueError):
        return None
    return Move(id_, min(mark[0], LATEST_MS), jobs, state, code) if all(map(keys.is_id, jobs)) else None


def _ask(line: Any, *commands: tuple[Any, ...]) -> "list[asyncio.Future[Any]]":
    """Send commands in one go. Each is answered by its reply, or by the error that came instead of one."""
    replies: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in commands]
    line.send([(command, partial(_tell, reply)) for command, reply in zip(commands, replies, strict=True)])
    return replies


def _tell(future: "asyncio.Future[Any]", reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
