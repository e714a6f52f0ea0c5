"""Waiting without polling: for work (markers) and for endings of watched jobs (a channel).

Both hold one connection per process, whatever the number of those who wait. What they hear are hints: a lost one costs a
moment, never a job.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import RedisError

from jobs import keys, verbs
from jobs.config import BLOCK_SECONDS, Settings, connect
from jobs.line import Lent, Line
from jobs.model import FINISHED, Standing
from jobs.transport import SyncTransport

REREAD = 1.0
"""Seconds after which a waiter looks for itself, in case a message was lost."""
REST = 0.5
"""Seconds to rest after Redis failed a blocking read; the work's own calls tell the world about it."""


class Markers:
    """Hears the markers of some queues. One blocking read at a time, which is never cut short."""

    def __init__(self, settings: Settings, wake_keys: Sequence[str], client: Any = None) -> None:
        self._client = client or connect(settings, blocking=True)
        self._line = Lent(self._client) if client or settings.door else Line(self._client.connection_pool)
        self._ask = ("BLPOP", *wake_keys, BLOCK_SECONDS)
        self._waiting: set[asyncio.Future[None]] = set()
        self._reading = False
        self._rest: asyncio.TimerHandle | None = None

    async def wait(self, seconds: float) -> bool:
        """Wait for a marker at most this long. True if there was one: go and claim."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(heard)
        self._read()
        try:
            async with asyncio.timeout(seconds):  # and never wait_for: before Python 3.12 it may swallow a cancellation
                await heard
        except TimeoutError:
            return False
        else:
            return True
        finally:
            self._waiting.discard(heard)

    def _read(self) -> None:
        """Read a marker, if somebody waits and no read is under way."""
        if self._waiting and not self._reading:
            self._reading = True
            self._line.send([(self._ask, self._hear)])

    def _hear(self, found: Any) -> None:
        """Wake those who wait; what arrives when nobody does is put back for another worker."""
        self._reading = False
        waiting = [heard for heard in self._waiting if not heard.done()]
        if isinstance(found, Exception):
            self._reading = True
            self._rest = asyncio.get_running_loop().call_later(REST, self._hear, None)
        elif found and not waiting:
            self._line.send([(("LPUSH", *found), _no_matter)])
        elif found:
            for heard in waiting:
                heard.set_result(None)
        else:
            self._read()

    async def aclose(self) -> None:
        """Stop listening."""
        await self._line.aclose(at_once=True)
        if self._rest:
            self._rest.cancel()
        await self._client.aclose()


def _no_matter(reply: Any) -> None:
    """A marker is a hint: whether it could be put back decides nothing."""


class Endings:
    """Hears which watched jobs have ended. One subscription serves all who wait in this process."""

    def __init__(self, settings: Settings, client: Any = None) -> None:
        self._client = client or connect(settings, blocking=True)
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        self._channels: set[str] = set()
        self._subscribing = asyncio.Lock()
        self._under_way: set[asyncio.Future[None]] = set()
        self._expected: dict[str, set[asyncio.Event]] = {}
        self._listening: asyncio.Task[None] | None = None

    async def subscribe(self, base: str) -> None:
        """Listen to a partition's channel from now on."""
        # A task of its own: redis-py waits by wait_for, which may swallow its caller's cancellation before Python 3.12.
        subscribing = asyncio.ensure_future(self._subscribe(base))
        self._under_way.add(subscribing)
        subscribing.add_done_callback(self._under_way.discard)
        await asyncio.shield(subscribing)

    async def _subscribe(self, base: str) -> None:
        async with self._subscribing:
            channel = keys.ended(base)
            if channel not in self._channels:
                with contextlib.suppress(RedisError, OSError):  # the caller's next call says what is wrong with the server
                    await self._pubsub.subscribe(channel)
                    if not self._channels:  # the confirmation: from here on nothing is missed; later ones the listener hears
                        await self._pubsub.get_message(timeout=REREAD)
                    self._channels.add(channel)
            if self._channels and (self._listening is None or self._listening.done()):
                self._listening = asyncio.create_task(self._listen())

    @contextlib.contextmanager
    def expecting(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when this job is said to have ended. Expect before `watch`, or an ending may slip between."""
        event = asyncio.Event()
        self._expected.setdefault(job_id, set()).add(event)
        try:
            yield event
        finally:
            self._expected[job_id].discard(event)
            if not self._expected[job_id]:
                del self._expected[job_id]

    async def _listen(self) -> None:
        while True:
            try:
                message = await self._pubsub.get_message(timeout=BLOCK_SECONDS)
            except (RedisError, OSError):
                await asyncio.sleep(REST)
                continue
            for event in self._expected.get(message["data"].decode(), ()) if message else ():
                event.set()

    async def aclose(self) -> None:
        """Stop listening."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        if self._listening:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        await self._pubsub.aclose()
        await self._client.aclose()


def watch_sync(transport: SyncTransport, base: str, job_id: str, wait: float) -> Standing:
    """Where a job stands, as soon as it has ended or `wait` seconds are over; for code without an event loop."""
    until = time.monotonic() + wait
    with transport.client.pubsub(ignore_subscribe_messages=True) as pubsub:
        with contextlib.suppress(RedisError, OSError):  # the call below says what is wrong with the server
            pubsub.subscribe(keys.ended(base))
            pubsub.get_message(timeout=REREAD)  # the confirmation: from here on nothing is missed
        while True:
            (standing,) = transport.run(verbs.watch(base, [job_id]))
            left = until - time.monotonic()
            if standing.state is None or standing.state in FINISHED or left <= 0:
                return standing
            _hear(pubsub, job_id, min(left, REREAD))


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
