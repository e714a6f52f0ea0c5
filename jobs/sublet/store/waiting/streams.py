"""Read the streams of jobs while their tasks emit chunks."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from typing import Any
from weakref import WeakSet

from sublet.connection.routing import RoutingTransport
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.connection.topology import Topology
from sublet.connection.transport import SyncTransport, unavailable
from sublet.errors import NotFound, Unavailable
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call
from sublet.steps.chunks import PAGE, StreamPage, read_stream
from sublet.store.results import AWAY, REST, reader

REREAD = 5.0
"""Seconds between two reads without a message, as one may be lost."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class Streams:
    """Reads the streams of jobs for all readers in this process, over one subscription. For one event loop."""

    def __init__(
        self, settings: Settings, run: Run, client: Any = None, routes: RoutingTransport | None = None
    ) -> None:
        self._settings, self._run, self._routes = settings, run, routes
        self._client: Any = client
        self._pubsub: Any = None
        self._seen: Topology | None = None
        self._feeds: dict[str, _Feed] = {}
        self._channels: set[str] = set()
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None
        self.subscribers: WeakSet[Any] = WeakSet()
        """The open streams of HTTP clients."""
        self.closed = False

    async def follow(
        self, base: str, job_id: str, after: int, seconds: float, count: int = PAGE
    ) -> AsyncGenerator[StreamPage, None]:
        """Yield pages of up to `count` entries after number `after`, also empty ones, every 5 s or sooner,
        until the job has ended or was deleted, or for `seconds`. Raises NotFound if there is no job at first,
        Unavailable.
        """
        until, is_first, missed, asked = time.monotonic() + seconds, True, False, False
        feed = self._feeds.setdefault(keys.stream(base, job_id), _Feed(base, job_id))
        feed.readers += 1
        try:
            while True:
                if seconds > 0:
                    await self._listen_to(feed)
                arrival = feed.arrival
                page = await self._read(feed, after, count)
                if is_first and page.state is None:
                    raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
                is_first, after, missed = False, page.cursor, missed or page.missed
                if seconds > 0 and not (asked or page.more or page.is_over or page.is_watched):
                    asked = True
                    await self._run(verbs.watch(base, [job_id]))  # then new chunks are published
                    feed.wake()
                if page.entries or not page.more:
                    yield page._replace(missed=missed)
                    missed = False
                if page.is_over or (not page.more and (self.closed or time.monotonic() >= until)):
                    return
                if not page.more:
                    try:
                        async with asyncio.timeout(max(0.0, min(REREAD, until - time.monotonic()))):
                            await arrival.wait()
                    except TimeoutError:
                        asked = False  # a failover may have lost it
        finally:
            feed.readers -= 1
            if not feed.readers:
                self._feeds.pop(feed.channel, None)
                if not self.closed:
                    self._start(self._subscribe())

    async def _read(self, feed: "_Feed", after: int, count: int) -> StreamPage:
        asked = after, count, feed.version
        reading = feed.reads.get(asked)
        if reading is None:
            call = read_stream(feed.base, feed.job_id, after, count)
            reading = feed.reads[asked] = asyncio.ensure_future(self._run(call))
            reading.add_done_callback(partial(_forget, feed, asked))
        page: StreamPage = await asyncio.shield(reading)
        return page

    async def _listen_to(self, feed: "_Feed") -> None:
        if feed.subscribed.is_set() and self._listening and not self._listening.done():
            return
        self._start(self._subscribe())
        try:
            async with asyncio.timeout(self._settings.timeout):
                await feed.subscribed.wait()
        except TimeoutError as error:
            raise unavailable(self._settings, error) from error

    def _start(self, work: Any) -> None:
        # its own task, as in `ResultWatcher`
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _subscribe(self) -> None:
        async with self._changing:
            ended = {keys.ended(feed.base) for feed in self._feeds.values()}
            for channel in self._channels & self._feeds.keys():
                self._feeds[channel].subscribed.set()
            wanted = {*self._feeds, *ended, *(name for name in self._channels if name.endswith(":ended"))}
            new, old = wanted - self._channels, self._channels - wanted
            with contextlib.suppress(*AWAY, Unavailable):  # readers then time out, or read at intervals
                if new and self._pubsub is None:
                    await self._connect(min(new))
                if new:
                    await self._pubsub.subscribe(*new)
                if old:
                    await self._pubsub.unsubscribe(*old)
                self._channels = wanted
                if wanted and (self._listening is None or self._listening.done()):
                    self._listening = asyncio.create_task(self._listen())

    async def _connect(self, channel: str) -> None:
        if self._routes is None:
            self._client = self._client or connect(self._settings, blocking=True)
            self._pubsub = self._client.pubsub()
            return
        self._seen, url = await self._routes.find(channel[: channel.find("}") + 1], self._seen)
        before, self._pubsub = self._pubsub, self._routes.blocking_client(url).pubsub()
        if before:
            await before.aclose()

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._pubsub.get_message(timeout=BLOCK_SECONDS)
            except (*AWAY, Unavailable):
                await asyncio.sleep(REST)
                await self._resubscribe()
                continue
            if message:
                self._received(message["type"], message["channel"].decode(), message["data"])

    def _received(self, kind: str, channel: str, data: Any) -> None:
        if kind == "message" and channel.endswith(":ended"):
            channel = keys.stream(channel.removesuffix(":ended"), data.decode())
        feed = self._feeds.get(channel)
        if feed is not None and kind != "unsubscribe":
            if kind == "subscribe":  # perhaps after a lost connection
                feed.subscribed.set()
            feed.wake()

    async def _resubscribe(self) -> None:
        if self._routes and self._channels:
            with contextlib.suppress(*AWAY, Unavailable):
                await self._connect(min(self._channels))
                await self._pubsub.subscribe(*self._channels)

    def close(self) -> None:
        """End all streams after one more read."""
        self.closed = True
        for feed in self._feeds.values():
            feed.wake()

    async def aclose(self) -> None:
        """Unsubscribe and close the connection."""
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._listening:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        if self._pubsub:
            await self._pubsub.aclose()
        if self._client:
            await self._client.aclose()


class _Feed:
    def __init__(self, base: str, job_id: str) -> None:
        self.base, self.job_id, self.channel = base, job_id, keys.stream(base, job_id)
        self.readers = self.version = 0
        self.subscribed, self.arrival = asyncio.Event(), asyncio.Event()
        self.reads: dict[tuple[int, int, int], asyncio.Future[StreamPage]] = {}

    def wake(self) -> None:
        self.version += 1
        arrival, self.arrival = self.arrival, asyncio.Event()
        arrival.set()


def _forget(feed: _Feed, asked: tuple[int, int, int], reading: "asyncio.Future[StreamPage]") -> None:
    feed.reads.pop(asked, None)
    if not reading.cancelled():
        reading.exception()  # mark it as retrieved


def follow_stream_sync(
    transport: SyncTransport, base: str, job_id: str, after: int, seconds: float
) -> Generator[StreamPage, None, None]:
    """Yield pages of a job's stream, as `Streams.follow`, over a connection of its own."""
    until, is_first, missed = time.monotonic() + seconds, True, False
    channels = keys.stream(base, job_id), keys.ended(base)
    with reader(transport, base) as client, client.pubsub() as pubsub:
        with contextlib.suppress(*AWAY):
            pubsub.subscribe(*channels)
            for _ in channels:
                pubsub.get_message(timeout=1.0)  # the confirmations
        while True:
            page = transport.run(read_stream(base, job_id, after))
            if is_first and page.state is None:
                raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
            is_first, after, missed = False, page.cursor, missed or page.missed
            if page.entries or not page.more:
                yield page._replace(missed=missed)
                missed = False
            if page.is_over or (not page.more and time.monotonic() >= until):
                return
            if page.more:
                continue
            if page.is_watched:
                _wait(pubsub, job_id, min(REREAD, until - time.monotonic()))
            else:
                transport.run(verbs.watch(base, [job_id]))


def _wait(pubsub: Any, job_id: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            message = pubsub.get_message(timeout=left)
        except AWAY:
            time.sleep(min(REST, left))
            return
        is_other = message and message["channel"].endswith(b":ended") and message["data"] != job_id.encode()
        if message and message["type"] == "message" and not is_other:
            return
