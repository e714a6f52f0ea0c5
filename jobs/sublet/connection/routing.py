"""Transports over several servers (a cluster, or sentinels).

After no reply, or an error of a moved slot or replaced primary, the topology is read and the call sent again,
for up to `Settings.patience` seconds.
"""

import asyncio
import re
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from sublet.connection.settings import Settings, connect, connect_sync
from sublet.connection.topology import Query, Topology, TopologyMap
from sublet.connection.transport import SyncTransport, Transport, denied, follow, follow_sync
from sublet.connection.url import MultiServerUrl
from sublet.errors import Demoted, Moved, Unavailable
from sublet.protocol.scripts import Call

T = TypeVar("T")

PAUSES = (0.02, 0.05, 0.1, 0.2)


def transport_for(settings: Settings, client: Any = None) -> Transport:
    """Make the transport for the settings' URL, or over a given redis-py client."""
    many = None if client or settings.client_factory else MultiServerUrl.read(settings.redis_url)
    return RoutingTransport(settings, many) if many else Transport(settings, client)


def sync_transport_for(settings: Settings) -> SyncTransport:
    """Make the sync transport for the settings' URL."""
    many = None if settings.client_factory else MultiServerUrl.read(settings.redis_url)
    return SyncRoutingTransport(settings, many) if many else SyncTransport(settings)


class _RetryWindow:
    def __init__(self, settings: Settings) -> None:
        self._settings, self._retries = settings, 0
        self._until = time.monotonic() + settings.patience
        self._last: Unavailable | None = None

    @property
    def left(self) -> float:
        return max(self._until - time.monotonic(), self._settings.timeout)

    def check(self) -> None:
        if self._last and time.monotonic() > self._until:
            raise self._last

    def pause(self, error: Unavailable) -> float | None:
        self._last, self._retries = error, self._retries + 1
        if time.monotonic() > self._until or not _is_transient(error):
            return None
        return PAUSES[min(self._retries, len(PAUSES)) - 1]


def _is_transient(error: Unavailable) -> bool:
    cause = error.__cause__
    gone = type(error) is Unavailable and not (isinstance(cause, Exception) and denied(cause))
    return gone or isinstance(error, Demoted | Moved)


def _given_up(error: Unavailable, settings: Settings, tag: str) -> Unavailable:
    if isinstance(error, Moved):
        return Unavailable(
            f"the nodes of {settings.shown_url} redirect each call to another node, as while a hash slot is migrated key by key: repeat the call later"
        )
    words = re.sub(
        r": (another server|is it up).*", "", re.sub(r"\bRedis at \w+://([^/\s]+)\S*", r"\1", str(error))
    )
    if not words.startswith(("no answer from ", "Redis cannot serve now")):
        return error
    who = "primary" if "+sentinel:" in settings.redis_url else "node"
    return type(error)(f"no {who} of {settings.shown_url} serves {tag} now: {words}", lasting=error.lasting)


def _no_topology(settings: Settings) -> Unavailable:
    return Unavailable(
        f"no server of {settings.shown_url} reports the topology in time: is one of them up, and is SUBLET_REDIS_URL right?"
    )


class RoutingTransport(Transport):
    """Sends each call to the server of its partition, on an event loop. A call without a partition goes to
    partition 0's.
    """

    def __init__(self, settings: Settings, many: MultiServerUrl) -> None:
        self.settings = settings
        self.client = None
        self._map = TopologyMap(settings, many)
        self._transports: dict[str, Transport] = {}
        self._blocking_clients: dict[str, Any] = {}
        self._reading: asyncio.Task[Topology] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.listeners: WeakSet[Any] = WeakSet()
        """Objects whose `moved` is called after each read of the topology."""

    async def run(self, call: Call[T]) -> T:
        """Send a call; return its parsed reply. Raises Refused, Invalid, Unavailable."""
        patience, found, url = _RetryWindow(self.settings), self._map.found, ""
        tag = call.tag or self._map.home
        while True:
            try:
                found = found or await self._read_topology(tag, patience.left)
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

    async def find(self, tag: str, seen: Topology | None = None) -> tuple[Topology, str]:
        """Return the topology and the URL of a partition's server. Reads the topology first if it is not
        known, or still is `seen`. Raises Unavailable.
        """
        found = self._newer(seen) or await self._read_topology(tag, _RetryWindow(self.settings).left)
        return found, found.of(tag)

    def blocking_client(self, url: str) -> Any:
        """Return the redis-py client for blocking reads of the server at this URL; `aclose` closes it."""
        if url not in self._blocking_clients:
            self._blocking_clients[url] = connect(self._map.node(url), blocking=True)
        return self._blocking_clients[url]

    def known_url(self, tag: str) -> str:
        """Return the URL of a partition's server, as far as known here; empty if unknown."""
        try:
            return self._map.found.of(tag) if self._map.found else ""
        except Demoted:
            return ""

    def _newer(self, seen: Topology | None) -> Topology | None:
        return self._map.found if self._map.found is not seen else None

    def _forget(self, seen: Topology | None) -> None:
        self._map.found = self._newer(seen)

    def _at(self, url: str) -> Transport:
        if self._closed:
            raise Unavailable("this client was closed: make a new one")
        if url not in self._transports:
            self._transports[url] = Transport(self._map.node(url))
        return self._transports[url]

    async def _read_topology(self, tag: str, seconds: float) -> Topology:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._find(tag))
            self._reading.add_done_callback(self._topology_read)
        reading = self._reading
        await asyncio.wait([reading], timeout=seconds)
        if not reading.done() or reading.cancelled():
            raise _no_topology(self.settings)
        return reading.result()

    async def _find(self, tag: str) -> Topology:
        return await follow(lambda query: self._at(query.url).run(query.call), self._map.plan(tag))

    def _topology_read(self, reading: "asyncio.Task[Topology]") -> None:
        self._reading = None
        if reading.cancelled() or reading.exception():  # its callers get the error
            return
        self._map.take(reading.result())
        kept = self._map.kept(reading.result())
        for url in self._transports.keys() - kept:
            self._start(self._transports.pop(url).aclose())
        for url in self._blocking_clients.keys() - kept:
            self._start(self._blocking_clients.pop(url).aclose())
        for listener in list(self.listeners):
            listener.moved()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait for the calls in flight, and close the connections."""
        self._closed = True
        if self._reading:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for each in (*self._transports.values(), *self._blocking_clients.values()):
            await each.aclose()
        if self._tasks:
            await asyncio.wait(self._tasks)


class SyncRoutingTransport(SyncTransport):
    """Sends each call to the server of its partition, without an event loop. Threads may share it."""

    def __init__(self, settings: Settings, many: MultiServerUrl) -> None:
        self.settings = settings
        self.client = None
        self._map = TopologyMap(settings, many)
        self._transports: dict[str, SyncTransport] = {}

    def run(self, call: Call[T]) -> T:
        """Send a call; return its parsed reply. Raises Refused, Invalid, Unavailable."""
        patience, found, url = _RetryWindow(self.settings), self._map.found, ""
        tag = call.tag or self._map.home
        while True:
            try:
                found = found or self._read_topology(tag, patience.left)
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

    def new_client(self, tag: str) -> Any:
        """Make a redis-py client of a partition's server; the caller closes it. Raises Unavailable."""
        return connect_sync(self._map.node(self._url_of(tag)))

    def address(self, tag: str) -> str:
        """Return host:port of a partition's server. Raises Unavailable."""
        return urlsplit(self._url_of(tag)).netloc.rpartition("@")[2]

    def _url_of(self, tag: str) -> str:
        return (self._map.found or self._read_topology(tag, _RetryWindow(self.settings).left)).of(tag)

    def _at(self, url: str) -> SyncTransport:
        there = self._transports.get(url)
        return there or self._transports.setdefault(url, SyncTransport(self._map.node(url)))

    def _read_topology(self, tag: str, seconds: float) -> Topology:
        until = time.monotonic() + seconds

        def run(query: Query) -> Any:
            if time.monotonic() > until:
                raise _no_topology(self.settings)
            return self._at(query.url).run(query.call)

        found = follow_sync(run, self._map.plan(tag))
        self._take(found)
        return found

    def _take(self, found: Topology) -> None:
        self._map.take(found)
        for url in set(self._transports) - self._map.kept(found):
            if gone := self._transports.pop(url, None):
                gone.close()  # calls in flight there are sent again

    def close(self) -> None:
        """Close the connections."""
        for each in list(self._transports.values()):
            each.close()
