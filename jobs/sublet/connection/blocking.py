"""Reads that block on several servers: lines that go where a partition is by now, and many of them that look like one.

A blocking read is tied to the connection that it was sent on. When its partition has moved, or its server is gone, it ends with
an error, as on any line that broke, and whoever asked asks again: over a line to where the partition is then.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from sublet.connection.pipeline import Ask, Lent, Line
from sublet.connection.routing import Routes
from sublet.connection.settings import BLOCK_SECONDS, Settings
from sublet.connection.topology import Found
from sublet.errors import JobsError
from sublet.protocol import keys
from sublet.protocol.scripts import Call

REST = 0.5
"""Seconds to rest after a blocking read failed; the work's own calls tell the world about it."""
HELD = 0.05
"""Seconds for which a marker is kept that was heard between two reads; then it goes back, for another process."""

Run = Callable[[Call[Any]], Awaitable[Any]]
Tell = Callable[[Any], None]


def blocking_line(settings: Settings, client: Any, given: Any) -> Lent | Line:
    """A line to one server, through a client for blocking reads that was made of the settings, or that somebody has `given`."""
    return Lent(client) if given or settings.door else Line(client.connection_pool)


class Ear:
    """A line to the server of one partition, found when somebody sends; after an error it is another line."""

    def __init__(self, routes: Routes, tag: str) -> None:
        self._routes, self._tag = routes, tag
        self._line: Line | None = None
        self._found: Found | None = None
        self._url = ""
        self._unsent: list[Ask] = []
        self._opening: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        routes.listeners.add(self)

    def send(self, asks: Sequence[Ask]) -> None:
        """Send commands in one go."""
        if self._line is None:
            self._unsent += asks
            self._opening = self._opening or asyncio.get_running_loop().create_task(self._open())
        else:
            self._line.send([(command, partial(self._told, self._line, tell)) for command, tell in asks])

    async def _open(self) -> None:
        failure: JobsError | None = None
        try:
            self._found, self._url = await self._routes.find(self._tag, self._found)
            self._line = Line(self._routes.reader(self._url).connection_pool)
        except JobsError as error:
            self._found, failure = None, error
        self._opening = None
        unsent, self._unsent = self._unsent, []
        if failure is None:
            self.send(unsent)
        for _, tell in unsent if failure else ():
            tell(failure)

    def _told(self, line: Line, tell: Tell, reply: Any) -> None:
        if isinstance(reply, Exception):
            self._leave(line)
        tell(reply)

    def moved(self) -> None:
        """Break off what is under way, if the partition is elsewhere by now: its server may stand still, and never say so."""
        if self._line and self._routes.now(self._tag) not in ("", self._url):
            self._leave(self._line)

    def _leave(self, line: Line) -> None:
        if line is self._line:
            self._line = None
            task = asyncio.get_running_loop().create_task(line.aclose(at_once=True))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def aclose(self, *, at_once: bool = True) -> None:
        """Let go of the connection at once; whoever waits for an answer gets an error."""
        if self._opening:
            await asyncio.wait([self._opening])
        if self._line:
            self._leave(self._line)
        if self._leaving:
            await asyncio.wait(self._leaving)


class Ears:
    """Reads the markers of many partitions, each on its own server, as one `Line` reads them all on one (see `sublet.store.wakeups`).

    Its one BLPOP under way is one a partition. The first that ends answers it; the others go on, for the next.
    """

    def __init__(self, routes: Routes, run: Run) -> None:
        self._routes, self.run = routes, run
        self._tell: Tell | None = None
        self._parts: dict[str, _Part] = {}
        self._held: deque[str] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, asks: Sequence[Ask]) -> None:
        """Read markers (BLPOP), one read at a time; or put one down (LPUSH)."""
        for command, tell in asks:
            if command[0] == "BLPOP":
                self._read(command[1:-1], tell)
            else:
                self.begin(self._put_back(command[1]))

    def _read(self, names: Sequence[str], tell: Tell) -> None:
        self._tell = tell
        if self._held:
            asyncio.get_running_loop().call_soon(self._answer_held)
        by_tag: dict[str, list[str]] = {}
        for name in names:
            by_tag.setdefault(name[: name.find("}") + 1], []).append(name)
        for tag, own in by_tag.items():
            if tag not in self._parts:
                self._parts[tag] = _Part(self, Ear(self._routes, tag), tag)
            self._parts[tag].want(own)

    def answer(self, found: Any) -> bool:
        """Answer the read under way, if there is one."""
        tell, self._tell = self._tell, None
        if tell is None:
            return False
        for part in self._parts.values():
            part.wanted = []
        tell(found)
        return True

    def heard(self, key: str) -> None:
        """Somebody has left a marker."""
        if not self.answer([key, b"1"]):
            self._held.append(key)
            asyncio.get_running_loop().call_later(HELD, self._let_go)

    def _answer_held(self) -> None:
        if self._held and self._tell:
            self.answer([self._held.popleft(), b"1"])

    def _let_go(self) -> None:
        if self._held:
            self.begin(self._put_back(self._held.popleft()))

    async def _put_back(self, key: str) -> None:
        with contextlib.suppress(
            JobsError
        ):  # a marker is a hint: whether it could be put back decides nothing
            await self.run(Call((("LPUSH", key, 1),), bool))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self, *, at_once: bool = True) -> None:
        """Stop listening."""
        for part in self._parts.values():
            await part.aclose()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=REST)
            for task in late:
                task.cancel()


class _Part:
    """The blocking read of one partition: never cut short, but interrupted by a key of its own when it should name others."""

    def __init__(self, ears: Ears, ear: Ear, tag: str) -> None:
        self._ears, self._ear = ears, ear
        self._own = keys.wake(tag, "|" + secrets.token_urlsafe(16))
        self.wanted: list[str] = []
        """What the next read names; nothing: there is none."""
        self._named: frozenset[str] = frozenset()
        self._reading = self._interrupted = False
        self._rest: asyncio.TimerHandle | None = None

    def want(self, names: list[str]) -> None:
        """Read these markers, from now on."""
        self.wanted = names
        if not self._reading:
            self._read()
        elif not self._interrupted and not self._rest and not self._named.issuperset(names):
            self._interrupted = True
            self._ears.begin(self._interrupt())

    def _read(self) -> None:
        if self.wanted:
            self._reading, self._named = True, frozenset(self.wanted)
            self._ear.send([(("BLPOP", *self.wanted, self._own, BLOCK_SECONDS), self._hear)])

    def _hear(self, found: Any) -> None:
        self._interrupted = False
        if isinstance(found, Exception):
            self._rest = asyncio.get_running_loop().call_later(REST, self._read_again)
            return
        self._reading = False
        key = found[0].decode() if found else ""
        if key and key != self._own:
            self._ears.heard(key)
        elif key or not self._ears.answer(None):
            self._read()

    def _read_again(self) -> None:
        self._rest, self._reading = None, False
        self._read()

    async def _interrupt(self) -> None:
        life = BLOCK_SECONDS * 1000  # if the read has just ended: then nobody may ever take what is put there
        try:
            await self._ears.run(Call((("LPUSH", self._own, 1), ("PEXPIRE", self._own, life)), bool))
        except JobsError:
            self._interrupted = False  # the read ends by itself, in some seconds

    async def aclose(self) -> None:
        """Stop reading."""
        if self._rest:
            self._rest.cancel()
        self._rest = None
        await self._ear.aclose()
        if self._rest:  # the end of the line was an error
            self._rest.cancel()
