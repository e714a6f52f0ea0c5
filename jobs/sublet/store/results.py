"""Wait for results by pub/sub: a channel per partition names the watched jobs that end.

Watched jobs are also read at intervals: a lost message only delays a result.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from sublet.connection.routing import RoutingTransport, SyncRoutingTransport
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.connection.topology import Topology
from sublet.connection.transport import SyncTransport, unavailable
from sublet.errors import Unavailable
from sublet.model import FINISHED, Standing
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

REREAD = 1.0
"""Seconds between two reads of a watched job without a message."""
MANY = 200
"""Up to so many watched jobs are read every second; more every other second."""
BATCH = 50
"""Jobs that one call reads: the reply may contain all results."""
REST = 0.5
"""Seconds to pause after a failed read."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class ResultWatcher:
    """Waits for jobs to end, over one subscription for all `watch` calls of a store."""

    def __init__(
        self, settings: Settings, run: Run, client: Any = None, routes: RoutingTransport | None = None
    ) -> None:
        self._settings = settings
        self._run, self._routes = run, routes
        self._client: Any = None if routes else client or connect(settings, blocking=True)
        self._pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True) if self._client else None
        self._home = ""
        self._seen: Topology | None = None
        self._channels: set[str] = set()
        self._subscribing = asyncio.Lock()
        self._under_way: set[asyncio.Future[None]] = set()
        self._expected: dict[str, set[_Watch]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None
        self._hurried = False

    async def watch(self, base: str, job_id: str, wait: float) -> Standing:
        """As `Store.watch`, for a job of partition `base`."""
        until = time.monotonic() + wait
        await self._listen_to(base)
        with self._expecting(base, job_id) as watch:  # before the read: the job may end right after it
            while True:
                watch.woken.clear()
                standing: Standing = (await self._run(verbs.watch(base, [job_id])))[0]
                left = until - time.monotonic()
                if _is_over(standing) or left <= 0 or self._hurried:
                    return standing
                watch.read_at = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await watch.woken.wait()
                if watch.found:
                    return watch.found

    def hurry(self) -> None:
        """Make all `watch` calls read their job once more and return; later ones do not wait."""
        self._hurried = True
        for watches in self._expected.values():
            for watch in watches:
                watch.woken.set()

    @contextlib.contextmanager
    def _expecting(self, base: str, job_id: str) -> Iterator["_Watch"]:
        watch = _Watch(base)
        self._expected.setdefault(job_id, set()).add(watch)
        if self._rereading is None or self._rereading.done():
            self._rereading = asyncio.get_running_loop().create_task(self._reread())
        try:
            yield watch
        finally:
            self._expected[job_id].discard(watch)
            if not self._expected[job_id]:
                del self._expected[job_id]

    async def _listen_to(self, base: str) -> None:
        if keys.ended(base) in self._channels and self._listening and not self._listening.done():
            return
        # A task of its own: redis-py's wait_for may swallow a cancellation before Python 3.12.
        subscribing = asyncio.ensure_future(self._subscribe(base))
        self._under_way.add(subscribing)
        subscribing.add_done_callback(self._under_way.discard)
        try:
            # reads on this connection may block for long
            async with asyncio.timeout(self._settings.timeout):
                await asyncio.shield(subscribing)
        except TimeoutError as error:
            raise unavailable(self._settings, error) from error

    async def _subscribe(self, base: str) -> None:
        async with self._subscribing:
            channel = keys.ended(base)
            if channel not in self._channels:
                # the caller's next call raises the error
                with contextlib.suppress(RedisError, OSError, Unavailable):
                    if self._routes and self._pubsub is None:
                        await self._subscribe_at(self._routes, base)
                    await self._pubsub.subscribe(channel)
                    if not self._channels:
                        # After the confirmation no message is missed. `_listen` reads those of later channels.
                        await self._pubsub.get_message(timeout=REREAD)
                    self._channels.add(channel)
            if self._channels and (self._listening is None or self._listening.done()):
                self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._pubsub.get_message(timeout=BLOCK_SECONDS)
            except (RedisError, OSError, Unavailable):
                await asyncio.sleep(REST)
                await self._resubscribe()
                continue
            for watch in self._expected.get(message["data"].decode(), ()) if message else ():
                watch.woken.set()

    async def _subscribe_at(self, routes: RoutingTransport, home: str) -> None:
        self._home = home
        self._seen, url = await routes.find(home, self._seen)
        before, self._pubsub = (
            self._pubsub,
            routes.blocking_client(url).pubsub(ignore_subscribe_messages=True),
        )
        if before:
            await before.aclose()
        if self._channels:
            await self._pubsub.subscribe(*self._channels)

    async def _resubscribe(self) -> None:
        if self._routes:
            with contextlib.suppress(RedisError, OSError, Unavailable):
                await self._subscribe_at(self._routes, self._home)

    async def _reread(self) -> None:
        while self._expected:
            await asyncio.sleep(REREAD if len(self._expected) <= MANY else 2 * REREAD)
            by_base: dict[str, list[str]] = {}
            for job_id, watches in self._expected.items():
                base, read_at = min((watch.base, watch.read_at) for watch in watches)
                if time.monotonic() - read_at > REREAD / 2:
                    by_base.setdefault(base, []).append(job_id)
            for base, ids in by_base.items():
                for i in range(0, len(ids), BATCH):
                    await self._read_states(base, ids[i : i + BATCH])

    async def _read_states(self, base: str, ids: Sequence[str]) -> None:
        try:
            found = dict(zip(ids, await self._run(verbs.watch(base, ids)), strict=True))
            over = {job_id: standing for job_id, standing in found.items() if _is_over(standing)}
        except Exception:  # noqa: BLE001  # each waiter then reads itself, and gets the error
            over = dict.fromkeys(ids)
        for job_id, standing in over.items():
            for watch in self._expected.get(job_id, ()):
                watch.found = standing
                watch.woken.set()

    async def aclose(self) -> None:
        """Unsubscribe and close the connection."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        for task in filter(None, (self._listening, self._rereading)):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._pubsub:
            await self._pubsub.aclose()
        if self._client:
            await self._client.aclose()


@dataclass(slots=True, eq=False)
class _Watch:
    base: str
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    read_at: float = math.inf
    """When the state was last read; infinite during the first read."""
    found: Standing | None = None


def _is_over(standing: Standing) -> bool:
    return standing.state is None or standing.state in FINISHED


def watch_sync(transport: SyncTransport, base: str, job_id: str, wait: float) -> Standing:
    """As `ResultWatcher.watch`, without an event loop."""
    until = time.monotonic() + wait
    with _reader(transport, base) as client, client.pubsub(ignore_subscribe_messages=True) as pubsub:
        with contextlib.suppress(RedisError, OSError):  # the call below raises the error
            pubsub.subscribe(keys.ended(base))
            pubsub.get_message(timeout=REREAD)  # the confirmation: from here on no message is missed
        while True:
            (standing,) = transport.run(verbs.watch(base, [job_id]))
            left = until - time.monotonic()
            if standing.state is None or standing.state in FINISHED or left <= 0:
                return standing
            _wait_for_message(pubsub, job_id, min(left, REREAD))


@contextlib.contextmanager
def _reader(transport: SyncTransport, base: str) -> Iterator[Any]:
    if isinstance(transport, SyncRoutingTransport):
        with transport.new_client(base) as client:
            yield client
    else:
        yield transport.client


def _wait_for_message(pubsub: Any, job_id: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            message = pubsub.get_message(timeout=left)
        except (RedisError, OSError):
            time.sleep(min(REST, left))
            continue
        if message and message["data"] == job_id.encode():
            return
