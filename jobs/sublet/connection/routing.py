"""Transports over several servers: a call goes where its partition is, and goes there again when that has changed.

A cluster's slot may move, a primary may die and a replica take its place. What one server then says of another (MOVED, ASK,
READONLY, CLUSTERDOWN …), or that it says nothing at all, has us ask who serves what, and send the very same bytes again, as
long as `Settings.patience` lasts. Each server has a transport of its own, made when it is first needed.
"""

import asyncio
import re
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from sublet.connection.settings import Settings, connect, connect_sync
from sublet.connection.topology import Found, Map
from sublet.connection.transport import SyncTransport, Transport, denied
from sublet.connection.url import Many
from sublet.errors import Demoted, JobsError, Moved, Unavailable
from sublet.protocol.scripts import Call

T = TypeVar("T")

PAUSES = (0.02, 0.05, 0.1, 0.2)
"""Seconds to pause before a call is sent again; the last one from then on."""


def transport_for(settings: Settings, client: Any = None) -> Transport:
    """The transport that a URL asks for, for an event loop; `client` is used instead, if it is given."""
    many = None if client or settings.door else Many.read(settings.redis_url)
    return Routes(settings, many) if many else Transport(settings, client)


def sync_transport_for(settings: Settings) -> SyncTransport:
    """The same for code without an event loop."""
    many = None if settings.door else Many.read(settings.redis_url)
    return SyncRoutes(settings, many) if many else SyncTransport(settings)


class _Patience:
    """For how long a call is sent again. Nothing is sent when that is over: Redis may have forgotten what it did for the call."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._turn = settings, 0
        self._until = time.monotonic() + settings.patience
        self._last: Unavailable | None = None

    @property
    def left(self) -> float:
        """Seconds that a look may take: what is left, and enough for one question."""
        return max(self._until - time.monotonic(), self._settings.timeout)

    def check(self) -> None:
        """Raise what was wrong before, if a look took too long to send the same again."""
        if self._last and time.monotonic() > self._until:
            raise self._last

    def pause(self, error: Unavailable) -> float | None:
        """Seconds to wait before the same is sent again; None where it is not."""
        self._last, self._turn = error, self._turn + 1
        if time.monotonic() > self._until or not _passing(error):
            return None
        return PAUSES[min(self._turn, len(PAUSES)) - 1]


def _passing(error: Unavailable) -> bool:
    """May it be otherwise in a moment, or on another server?"""
    cause = error.__cause__
    gone = type(error) is Unavailable and not (isinstance(cause, Exception) and denied(cause))
    return gone or isinstance(error, Demoted | Moved)


def _given_up(error: Unavailable, settings: Settings, tag: str) -> Unavailable:
    """The error to raise when patience is over: in words about what the user named, not about one node alone."""
    if isinstance(error, Moved):
        return Unavailable(
            f"the nodes of {settings.shown_url} send us from one to the other: is a slot being moved key by key?"
        )
    words = re.sub(
        r": (another server|is it up).*", "", re.sub(r"\bRedis at \w+://([^/\s]+)\S*", r"\1", str(error))
    )
    if not words.startswith(("no answer from ", "Redis cannot serve now")):
        return error
    who = "primary" if "+sentinel:" in settings.redis_url else "node"
    return type(error)(f"no {who} of {settings.shown_url} serves {tag} now: {words}")


def _slow(settings: Settings) -> Unavailable:
    return Unavailable(
        f"nobody at {settings.shown_url} says in time who serves what: is it up, and is SUBLET_REDIS_URL right?"
    )


class Routes(Transport):
    """Runs calls on an event loop, each on the server of its partition; one about none goes where the first partition is."""

    def __init__(self, settings: Settings, many: Many) -> None:
        self.settings = settings
        self.client = None
        self._map = Map(settings, many)
        self._transports: dict[str, Transport] = {}
        self._readers: dict[str, Any] = {}
        self._looking: asyncio.Task[Found] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.listeners: WeakSet[Any] = WeakSet()
        """Whose `moved` is called when somebody has looked who serves what."""

    async def run(self, call: Call[T]) -> T:
        """Send a call and read its reply. Raises Refused when Redis said no, Unavailable when nobody served it in time."""
        patience, found, url = _Patience(self.settings), self._map.found, ""
        tag = call.tag or self._map.home
        while True:
            try:
                found = found or await self._look(tag, patience.left)
                patience.check()
                url = found.of(tag)
                return await self._at(url).run(call)
            except Unavailable as error:
                pause = patience.pause(error)
                self._map.doubt(url, error)
                if pause is None or self._closed:
                    self._forget(found)
                    raise _given_up(error, self.settings, tag) from error
            await asyncio.sleep(pause)
            found = self._newer(found)

    async def find(self, tag: str, seen: Found | None = None) -> tuple[Found, str]:
        """Who serves what, and the URL of the server that has a partition; looked for anew if `seen` is all that is known.

        Raises Unavailable.
        """
        found = self._newer(seen) or await self._look(tag, _Patience(self.settings).left)
        return found, found.of(tag)

    def reader(self, url: str) -> Any:
        """A Redis client for reads that block, of one server."""
        if url not in self._readers:
            self._readers[url] = connect(self._map.node(url), blocking=True)
        return self._readers[url]

    def now(self, tag: str) -> str:
        """The URL of the server that has a partition, as far as is known; else empty."""
        try:
            return self._map.found.of(tag) if self._map.found else ""
        except Demoted:
            return ""

    def _newer(self, seen: Found | None) -> Found | None:
        return self._map.found if self._map.found is not seen else None

    def _forget(self, seen: Found | None) -> None:
        self._map.found = self._newer(seen)

    def _at(self, url: str) -> Transport:
        if self._closed:
            raise Unavailable("this client was closed")
        if url not in self._transports:
            self._transports[url] = Transport(self._map.node(url))
        return self._transports[url]

    async def _look(self, tag: str, seconds: float) -> Found:
        """Find out who serves what: one for all who ask meanwhile, whoever of them leaves. Raises Unavailable."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._find(tag))
            self._looking.add_done_callback(self._looked)
        looking = self._looking
        await asyncio.wait([looking], timeout=seconds)
        if not looking.done() or looking.cancelled():
            raise _slow(self.settings)
        return looking.result()

    async def _find(self, tag: str) -> Found:
        plan, answer, failure = self._map.plan(tag), None, None
        while True:
            try:
                ask = plan.throw(failure) if failure else plan.send(answer)
            except StopIteration as end:
                found: Found = end.value
                return found
            try:
                answer, failure = await self._at(ask.url).run(ask.call), None
            except JobsError as error:
                failure = error

    def _looked(self, looking: "asyncio.Task[Found]") -> None:
        self._looking = None
        if looking.cancelled() or looking.exception():  # those who wait for it have it
            return
        self._map.take(looking.result())
        kept = self._map.kept(looking.result())
        for url in self._transports.keys() - kept:
            self._begin(self._transports.pop(url).aclose())
        for url in self._readers.keys() - kept:
            self._begin(self._readers.pop(url).aclose())
        for listener in list(self.listeners):
            listener.moved()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Finish what is under way, but stop looking, and close the connections."""
        self._closed = True
        if self._looking:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        for each in (*self._transports.values(), *self._readers.values()):
            await each.aclose()
        if self._tasks:
            await asyncio.wait(self._tasks)


class SyncRoutes(SyncTransport):
    """The same without an event loop. Threads may share it; each looks for itself."""

    def __init__(self, settings: Settings, many: Many) -> None:
        self.settings = settings
        self.client = None
        self._map = Map(settings, many)
        self._transports: dict[str, SyncTransport] = {}

    def run(self, call: Call[T]) -> T:
        """Send a call and read its reply. Raises Refused when Redis said no, Unavailable when nobody served it in time."""
        patience, found, url = _Patience(self.settings), self._map.found, ""
        tag = call.tag or self._map.home
        while True:
            try:
                found = found or self._look(tag, patience.left)
                patience.check()
                url = found.of(tag)
                return self._at(url).run(call)
            except Unavailable as error:
                pause = patience.pause(error)
                self._map.doubt(url, error)
                if pause is None:
                    self._map.found = self._map.found if self._map.found is not found else None
                    raise _given_up(error, self.settings, tag) from error
            time.sleep(pause)
            found = self._map.found if self._map.found is not found else None

    def reader(self, tag: str) -> Any:
        """A Redis client of the server that has a partition, for reads that block. Raises Unavailable."""
        return connect_sync(self._map.node(self._where(tag)))

    def place(self, tag: str) -> str:
        """host:port of the server that has a partition, as far as is known. Raises Unavailable."""
        return urlsplit(self._where(tag)).netloc.rpartition("@")[2]

    def _where(self, tag: str) -> str:
        return (self._map.found or self._look(tag, _Patience(self.settings).left)).of(tag)

    def _at(self, url: str) -> SyncTransport:
        there = self._transports.get(url)
        return there or self._transports.setdefault(url, SyncTransport(self._map.node(url)))

    def _look(self, tag: str, seconds: float) -> Found:
        plan, answer, failure = self._map.plan(tag), None, None
        until = time.monotonic() + seconds
        while True:
            try:
                ask = plan.throw(failure) if failure else plan.send(answer)
            except StopIteration as end:
                found: Found = end.value
                self._take(found)
                return found
            if time.monotonic() > until:
                raise _slow(self.settings) from failure
            try:
                answer, failure = self._at(ask.url).run(ask.call), None
            except JobsError as error:
                failure = error

    def _take(self, found: Found) -> None:
        """Go by this, and close what leads to servers that are gone; who is on the way there is sent elsewhere."""
        self._map.take(found)
        for url in set(self._transports) - self._map.kept(found):
            if gone := self._transports.pop(url, None):
                gone.close()

    def close(self) -> None:
        """Close the connections."""
        for each in list(self._transports.values()):
            each.close()
