"""Wait for jobs to end. Redis publishes their ids; each job is also read at intervals, in case a message is
lost. A job that does not exist counts as ended.
"""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import RedisError

from sublet.connection.routing import RoutingTransport, SyncRoutingTransport
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.connection.topology import Topology
from sublet.connection.transport import SyncTransport, unavailable
from sublet.context import waiting
from sublet.errors import Unavailable
from sublet.model import FINISHED, Standing
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

REREAD = 1.0
"""Seconds between two reads of a watched job without a message."""
MANY = 200
"""If more jobs than this are watched, each is read every two seconds, not every second."""
BATCH = 50
REST = 0.5
AWAY = RedisError, OSError
"""Errors of a lost connection."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class ResultWatcher:
    """Waits for the ends of any number of jobs, over one connection."""

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
        """Wait up to `wait` seconds for a job's end; then return its standing. State None: no such job."""
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
                with waiting(), contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await watch.woken.wait()
                if watch.found:
                    return watch.found

    async def watch_many(self, jobs: Mapping[str, str], wait: float) -> AsyncIterator[dict[str, Standing]]:
        """Wait up to `wait` seconds for jobs (id → base); yield batches (id → standing) of those ended or
        non-existent, until none is left.
        """
        until, woken, called = time.monotonic() + wait, asyncio.Event(), deque["_Watch"]()
        for base in dict.fromkeys(jobs.values()):
            await self._listen_to(base)
        with contextlib.ExitStack() as stack:
            watches = {id: _Watch(base, woken, id=id, called=called) for id, base in jobs.items()}
            for watch in watches.values():
                stack.enter_context(self._expecting(watch.base, watch.id, watch))
            called.extend(watches.values())
            while watches:
                woken.clear()
                over = {id: found for id, found in await self._ended_of(called) if id in watches}
                for job_id in over:
                    self._forget(job_id, watches.pop(job_id))
                if over:
                    yield over
                left = until - time.monotonic()
                if left <= 0 or self._hurried:
                    return
                if watches and not called:
                    with waiting(), contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await woken.wait()

    async def _ended_of(self, called: "deque[_Watch]") -> Iterable[tuple[str, Standing]]:
        by_base: dict[str, list[_Watch]] = {}
        over: dict[str, Standing] = {}
        while called:
            watch = called.popleft()
            if watch.found:
                over[watch.id] = watch.found
            else:
                by_base.setdefault(watch.base, []).append(watch)
        calls = [
            (verbs.watch(base, [watch.id for watch in some]), some)
            for base, own in by_base.items()
            for some in (own[i : i + BATCH] for i in range(0, len(own), BATCH))
        ]
        replies = await asyncio.gather(*(self._run(call) for call, _ in calls))
        for (_, some), reply in zip(calls, replies, strict=True):
            for watch, standing in zip(some, reply, strict=True):
                watch.read_at = time.monotonic()
                if _is_over(standing):
                    over[watch.id] = standing
        return over.items()

    def hurry(self) -> None:
        """End all waits, after one more read of each job. Later calls do not wait."""
        self._hurried = True
        for watches in self._expected.values():
            for watch in watches:
                watch.wake()

    @contextlib.contextmanager
    def _expecting(self, base: str, job_id: str, watch: "_Watch | None" = None) -> Iterator["_Watch"]:
        watch = watch or _Watch(base)
        self._expected.setdefault(job_id, set()).add(watch)
        if self._rereading is None or self._rereading.done():
            self._rereading = asyncio.get_running_loop().create_task(self._reread())
        try:
            yield watch
        finally:
            self._forget(job_id, watch)

    def _forget(self, job_id: str, watch: "_Watch") -> None:
        watches = self._expected.get(job_id, set())
        watches.discard(watch)
        if not watches:
            self._expected.pop(job_id, None)

    async def _listen_to(self, base: str) -> None:
        if keys.ended(base) in self._channels and self._listening and not self._listening.done():
            return
        # Its own task: before Python 3.12, redis-py may swallow a cancellation
        subscribing = asyncio.ensure_future(self._subscribe(base))
        self._under_way.add(subscribing)
        subscribing.add_done_callback(self._under_way.discard)
        try:
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
                        # After the confirmation no message is missed
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
                watch.wake()

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
            await asyncio.sleep(_pause(len(self._expected)))
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
        except Exception:  # noqa: BLE001  # each waiter then gets the error
            over = dict.fromkeys(ids)
        for job_id, standing in over.items():
            for watch in self._expected.get(job_id, ()):
                watch.found = standing
                watch.wake()

    async def aclose(self) -> None:
        """Unsubscribe and close the client."""
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
    """Infinite during the first read."""
    found: Standing | None = None
    id: str = ""
    called: "deque[_Watch] | None" = None
    """The watches of a `watch_many` that were woken."""

    def wake(self) -> None:
        if self.called is not None:
            self.called.append(self)
        self.woken.set()


def _is_over(standing: Standing) -> bool:
    return standing.state is None or standing.state in FINISHED


def watch_sync(transport: SyncTransport, base: str, job_id: str, wait: float) -> Standing:
    """Wait up to `wait` seconds for a job's end; then return its standing. State None: no such job."""
    until = time.monotonic() + wait
    with reader(transport, base) as client, client.pubsub(ignore_subscribe_messages=True) as pubsub:
        with contextlib.suppress(RedisError, OSError):  # the call below raises the error
            pubsub.subscribe(keys.ended(base))
            pubsub.get_message(timeout=REREAD)  # the confirmation
        (standing,) = transport.run(verbs.watch(base, [job_id]))
        if _is_over(standing) or wait <= 0:
            return standing
        with waiting():
            while not _is_over(standing) and (left := until - time.monotonic()) > 0:
                _wait_for_message(pubsub, job_id, min(left, REREAD))
                (standing,) = transport.run(verbs.watch(base, [job_id]))
        return standing


def watch_many_sync(
    transport: SyncTransport, jobs: Mapping[str, str], wait: float
) -> Iterator[dict[str, Standing]]:
    """Wait up to `wait` seconds for jobs (id → base); yield batches (id → standing) of those ended or
    non-existent, until none is left.
    """
    until, left = time.monotonic() + wait, dict(jobs)
    bases = list(dict.fromkeys(jobs.values()))
    with reader(transport, bases[0]) as client, client.pubsub(ignore_subscribe_messages=True) as pubsub:
        with contextlib.suppress(RedisError, OSError):
            pubsub.subscribe(*map(keys.ended, bases))
            for _ in bases:
                pubsub.get_message(timeout=REREAD)
        due = list(jobs)
        while True:
            over = {job_id: found for job_id, found in read_many(transport, left, due) if _is_over(found)}
            for job_id in over:
                del left[job_id]
            if over:
                yield over
            seconds = until - time.monotonic()
            if not left or seconds <= 0:
                return
            with waiting():
                due = _woken(pubsub, left, min(seconds, _pause(len(left))))


def read_many(
    transport: SyncTransport, bases: Mapping[str, str], ids: Sequence[str]
) -> Iterator[tuple[str, Standing]]:
    """Read jobs, 50 in a call; yield each id and standing. `bases`: job id → base."""
    by_base: dict[str, list[str]] = {}
    for job_id in ids:
        by_base.setdefault(bases[job_id], []).append(job_id)
    for base, own in by_base.items():
        for i in range(0, len(own), BATCH):
            some = own[i : i + BATCH]
            standings: list[Standing] = transport.run(verbs.watch(base, some))
            yield from zip(some, standings, strict=True)


def _woken(pubsub: Any, ids: Mapping[str, str], seconds: float) -> list[str]:
    until, woken = time.monotonic() + seconds, dict[str, None]()
    while (left := until - time.monotonic()) > 0:
        try:
            message = pubsub.get_message(timeout=0.0 if woken else left)
        except (RedisError, OSError):
            time.sleep(min(REST, left))
            continue
        if message and message["data"].decode() in ids:
            woken[message["data"].decode()] = None
        elif woken and not message:
            break
    return list(woken) or list(ids)


def _pause(watched: int) -> float:
    return REREAD if watched <= MANY else 2 * REREAD


@contextlib.contextmanager
def reader(transport: SyncTransport, base: str) -> Iterator[Any]:
    """Yield a client for blocking reads of a partition's server."""
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
