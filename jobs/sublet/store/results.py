"""Waiting without polling for the endings of watched jobs, which a channel tells (for work: `sublet.store.wakeups`).

One connection per process, whatever the number of those who wait. What is heard are hints: a lost one costs a moment, never a
result.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from sublet.connection.routing import Routes, SyncRoutes
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.connection.topology import Found
from sublet.connection.transport import SyncTransport, away
from sublet.errors import Unavailable
from sublet.model import FINISHED, Standing
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

REREAD = 1.0
"""Seconds after which somebody looks where a job stands, in case a message was lost."""
MANY = 200
"""Jobs that are looked at every second; where more are watched, every other second."""
BATCH = 50
"""Jobs that one look takes: few enough that it may bring all their results at once."""
REST = 0.5
"""Seconds to rest after Redis failed a blocking read; the work's own calls tell the world about it."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class Endings:
    """Hears which watched jobs have ended. One subscription serves all who wait in this process; `run` sends a call."""

    def __init__(
        self, settings: Settings, run: Run, client: Any = None, routes: Routes | None = None
    ) -> None:
        self._settings = settings
        self._run, self._routes = run, routes
        self._client: Any = None if routes else client or connect(settings, blocking=True)
        self._pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True) if self._client else None
        self._home = ""
        self._seen: Found | None = None
        self._channels: set[str] = set()
        self._subscribing = asyncio.Lock()
        self._under_way: set[asyncio.Future[None]] = set()
        self._expected: dict[str, set[_Watch]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None
        self._hurried = False

    async def watch(self, base: str, job_id: str, wait: float) -> Standing:
        """Where a job stands, as soon as it has ended or `wait` seconds are over."""
        until = time.monotonic() + wait
        await self._listen_to(base)
        with self._expecting(base, job_id) as watch:  # before the look, or an ending may slip between
            while True:
                watch.told.clear()
                standing: Standing = (await self._run(verbs.watch(base, [job_id])))[0]
                left = until - time.monotonic()
                if _is_over(standing) or left <= 0 or self._hurried:
                    return standing
                watch.looked_at = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await watch.told.wait()
                if watch.found:
                    return watch.found

    def hurry(self) -> None:
        """Have those who wait look once more, and wait no longer."""
        self._hurried = True
        for watches in self._expected.values():
            for watch in watches:
                watch.told.set()

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
        """Listen to a partition's channel from now on. Raises Unavailable when that takes longer than a call may."""
        if keys.ended(base) in self._channels and self._listening and not self._listening.done():
            return
        # A task of its own: redis-py waits by wait_for, which may swallow its caller's cancellation before Python 3.12.
        subscribing = asyncio.ensure_future(self._subscribe(base))
        self._under_way.add(subscribing)
        subscribing.add_done_callback(self._under_way.discard)
        try:
            async with asyncio.timeout(
                self._settings.timeout
            ):  # reads on this connection may take long: this is not one
                await asyncio.shield(subscribing)
        except TimeoutError as error:
            raise away(self._settings, error) from error

    async def _subscribe(self, base: str) -> None:
        async with self._subscribing:
            channel = keys.ended(base)
            if channel not in self._channels:
                # the caller's next call says what is wrong with the server
                with contextlib.suppress(RedisError, OSError, Unavailable):
                    if self._routes and self._pubsub is None:
                        await self._go(self._routes, base)
                    await self._pubsub.subscribe(channel)
                    if (
                        not self._channels
                    ):  # the confirmation: from here on nothing is missed; later ones the listener hears
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
                await self._go_on()
                continue
            for watch in self._expected.get(message["data"].decode(), ()) if message else ():
                watch.told.set()

    async def _go(self, routes: Routes, home: str) -> None:
        """Subscribe where this partition is by now. In a cluster each server passes on what is published on any. Raises.

        When a server is none of ours any more, the connections to it are closed: so this one ends, if it stands still.
        """
        self._home = home
        self._seen, url = await routes.find(home, self._seen)
        before, self._pubsub = self._pubsub, routes.reader(url).pubsub(ignore_subscribe_messages=True)
        if before:
            await before.aclose()
        if self._channels:
            await self._pubsub.subscribe(*self._channels)

    async def _go_on(self) -> None:
        """After a failure: look anew where to listen, if there is more than one place."""
        if self._routes:
            with contextlib.suppress(RedisError, OSError, Unavailable):
                await self._go(self._routes, self._home)

    async def _reread(self) -> None:
        """Look where the jobs stand, in case a message was lost: many at a time, and less often where they are many."""
        while self._expected:
            await asyncio.sleep(REREAD if len(self._expected) <= MANY else 2 * REREAD)
            by_base: dict[str, list[str]] = {}
            for job_id, watches in self._expected.items():
                base, seen_at = min((watch.base, watch.looked_at) for watch in watches)
                if time.monotonic() - seen_at > REREAD / 2:
                    by_base.setdefault(base, []).append(job_id)
            for base, ids in by_base.items():
                for i in range(0, len(ids), BATCH):
                    await self._look_at(base, ids[i : i + BATCH])

    async def _look_at(self, base: str, ids: Sequence[str]) -> None:
        try:
            found = dict(zip(ids, await self._run(verbs.watch(base, ids)), strict=True))
            over = {job_id: standing for job_id, standing in found.items() if _is_over(standing)}
        except Exception:  # noqa: BLE001  # each one looks itself then, and hears of it
            over = dict.fromkeys(ids)
        for job_id, standing in over.items():
            for watch in self._expected.get(job_id, ()):
                watch.found = standing
                watch.told.set()

    async def aclose(self) -> None:
        """Stop listening."""
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
    """One who waits for a job's end: told to look, or what somebody has found who looked for many."""

    base: str
    told: asyncio.Event = field(default_factory=asyncio.Event)
    looked_at: float = math.inf
    """When it last looked itself; the first look is under way."""
    found: Standing | None = None


def _is_over(standing: Standing) -> bool:
    return standing.state is None or standing.state in FINISHED


def watch_sync(transport: SyncTransport, base: str, job_id: str, wait: float) -> Standing:
    """Where a job stands, as soon as it has ended or `wait` seconds are over; for code without an event loop."""
    until = time.monotonic() + wait
    with _reader(transport, base) as client, client.pubsub(ignore_subscribe_messages=True) as pubsub:
        with contextlib.suppress(RedisError, OSError):  # the call below says what is wrong with the server
            pubsub.subscribe(keys.ended(base))
            pubsub.get_message(timeout=REREAD)  # the confirmation: from here on nothing is missed
        while True:
            (standing,) = transport.run(verbs.watch(base, [job_id]))
            left = until - time.monotonic()
            if standing.state is None or standing.state in FINISHED or left <= 0:
                return standing
            _hear(pubsub, job_id, min(left, REREAD))


@contextlib.contextmanager
def _reader(transport: SyncTransport, base: str) -> Iterator[Any]:
    """A client that may listen to a partition's channel. One whose server dies is deaf from then on: there is the look."""
    if isinstance(transport, SyncRoutes):
        with transport.reader(base) as client:
            yield client
    else:
        yield transport.client


def _hear(pubsub: Any, job_id: str, seconds: float) -> None:
    """Return when this job is said to have ended, or when the seconds are over."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        try:
            message = pubsub.get_message(timeout=left)
        except (RedisError, OSError):
            time.sleep(min(REST, left))
            continue
        if message and message["data"] == job_id.encode():
            return
