"""Blocking reads of the wake-up lists of several partitions on several servers."""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from sublet.connection.pipeline import ClientPipeline, OnReply, Pipeline, Request
from sublet.connection.routing import RoutingTransport
from sublet.connection.settings import BLOCK_SECONDS, Settings
from sublet.connection.topology import Topology
from sublet.errors import JobsError
from sublet.protocol import keys
from sublet.protocol.scripts import Call

RETRY_SECONDS = 0.5
HOLD_SECONDS = 0.05
"""How many seconds a wake-up that arrives between two reads is kept. Then it is pushed back to Redis."""

Run = Callable[[Call[Any]], Awaitable[Any]]


def blocking_pipeline(settings: Settings, client: Any, given: Any) -> ClientPipeline | Pipeline:
    """Return a pipeline for blocking reads of the server of `client`: through redis-py if the client was
    `given` or made by a factory.
    """
    return ClientPipeline(client) if given or settings.client_factory else Pipeline(client.connection_pool)


class PartitionPipeline:
    """A pipeline to the server of one partition. Looks the server up at the first send and after each error."""

    def __init__(self, routes: RoutingTransport, tag: str) -> None:
        self._routes, self._tag = routes, tag
        self._pipeline: Pipeline | None = None
        self._topology: Topology | None = None
        self._url = ""
        self._unsent: list[Request] = []
        self._connecting: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        routes.listeners.add(self)

    def send(self, requests: Sequence[Request]) -> None:
        """Send commands in one write. Each one's callback gets its reply or an exception."""
        if self._pipeline is None:
            self._unsent += requests
            self._connecting = self._connecting or asyncio.get_running_loop().create_task(self._connect())
        else:
            self._pipeline.send(
                [
                    (command, partial(self._replied, self._pipeline, on_reply))
                    for command, on_reply in requests
                ]
            )

    async def _connect(self) -> None:
        failure: JobsError | None = None
        try:
            self._topology, self._url = await self._routes.find(self._tag, self._topology)
            self._pipeline = Pipeline(self._routes.blocking_client(self._url).connection_pool)
        except JobsError as error:
            self._topology, failure = None, error
        self._connecting = None
        unsent, self._unsent = self._unsent, []
        if failure is None:
            self.send(unsent)
        for _, on_reply in unsent if failure else ():
            on_reply(failure)

    def _replied(self, pipeline: Pipeline, on_reply: OnReply, reply: Any) -> None:
        if isinstance(reply, Exception):
            self._drop(pipeline)
        on_reply(reply)

    def moved(self) -> None:
        """End the reads in flight if the partition has moved to another server: the old one may never answer."""
        if self._pipeline and self._routes.known_url(self._tag) not in ("", self._url):
            self._drop(self._pipeline)

    def _drop(self, pipeline: Pipeline) -> None:
        if pipeline is self._pipeline:
            self._pipeline = None
            task = asyncio.get_running_loop().create_task(pipeline.aclose(at_once=True))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def aclose(self, *, at_once: bool = True) -> None:
        """Close the connection, always at once: pending commands get an error."""
        if self._connecting:
            await asyncio.wait([self._connecting])
        if self._pipeline:
            self._drop(self._pipeline)
        if self._closing:
            await asyncio.wait(self._closing)


class WakeupReader:
    """Reads the wake-ups of many partitions as if they were on one connection: splits a BLPOP into one for
    each partition.
    """

    def __init__(self, routes: RoutingTransport, run: Run) -> None:
        self._routes, self.run = routes, run
        self._on_reply: OnReply | None = None
        self._reads: dict[str, _PartitionRead] = {}
        self._held: deque[tuple[str, str]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, requests: Sequence[Request]) -> None:
        """Send a BLPOP, which reads wake-ups, or an LPUSH, which gives one back (and calls no callback)."""
        for command, on_reply in requests:
            if command[0] == "BLPOP":
                self._read(command[1:-1], on_reply)
            else:
                self.start(self._push_back(*command[1:]))

    def _read(self, names: Sequence[str], on_reply: OnReply) -> None:
        self._on_reply = on_reply
        if self._held:
            asyncio.get_running_loop().call_soon(self._reply_with_held)
        by_tag: dict[str, list[str]] = {}
        for name in names:
            by_tag.setdefault(name[: name.find("}") + 1], []).append(name)
        for tag, own in by_tag.items():
            if tag not in self._reads:
                self._reads[tag] = _PartitionRead(self, PartitionPipeline(self._routes, tag), tag)
            self._reads[tag].want(own)

    def reply(self, found: Any) -> bool:
        """Answer the pending read with `found`; return whether there was one."""
        on_reply, self._on_reply = self._on_reply, None
        if on_reply is None:
            return False
        for read in self._reads.values():
            read.wanted = []
        on_reply(found)
        return True

    def received(self, key: str, element: str) -> None:
        """Answer the pending read with a wake-up. Without a pending read, keep it 0.05 s for the
        next one, then push it back to Redis.
        """
        if not self.reply([key, element]):
            self._held.append((key, element))
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self._push_held_back)

    def _reply_with_held(self) -> None:
        if self._held and self._on_reply:
            self.reply(list(self._held.popleft()))

    def _push_held_back(self) -> None:
        if self._held:
            self.start(self._push_back(*self._held.popleft()))

    async def _push_back(self, key: str, element: str) -> None:
        with contextlib.suppress(JobsError):  # a lost wake-up only delays a job
            await self.run(Call((("LPUSH", key, element),), bool))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task; `aclose` waits 0.5 s for it, then cancels it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self, *, at_once: bool = True) -> None:
        """End the reads and close their connections."""
        for read in self._reads.values():
            await read.aclose()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=RETRY_SECONDS)
            for task in late:
                task.cancel()


class _PartitionRead:
    def __init__(self, reader: WakeupReader, pipeline: PartitionPipeline, tag: str) -> None:
        self._reader, self._pipeline = reader, pipeline
        self._own = keys.wake(tag, "|" + secrets.token_urlsafe(16))
        self.wanted: list[str] = []
        self._named: frozenset[str] = frozenset()
        self._reading = self._interrupted = False
        self._retry: asyncio.TimerHandle | None = None

    def want(self, names: list[str]) -> None:
        self.wanted = names
        if not self._reading:
            self._read()
        elif not self._interrupted and not self._retry and not self._named.issuperset(names):
            self._interrupted = True
            self._reader.start(self._interrupt())

    def _read(self) -> None:
        if self.wanted:
            self._reading, self._named = True, frozenset(self.wanted)
            self._pipeline.send([(("BLPOP", *self.wanted, self._own, BLOCK_SECONDS), self._received)])

    def _received(self, found: Any) -> None:
        self._interrupted = False
        if isinstance(found, Exception):
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._read_again)
            return
        self._reading = False
        key, element = (word.decode("utf-8", "replace") for word in found or (b"", b""))
        if key and key != self._own:
            self._reader.received(key, element)
        elif key or not self._reader.reply(None):
            self._read()

    def _read_again(self) -> None:
        self._retry, self._reading = None, False
        self._read()

    async def _interrupt(self) -> None:
        expires = BLOCK_SECONDS * 1000  # if the read has just ended, nothing pops this
        try:
            await self._reader.run(Call((("LPUSH", self._own, 1), ("PEXPIRE", self._own, expires)), bool))
        except JobsError:
            self._interrupted = False

    async def aclose(self) -> None:
        if self._retry:
            self._retry.cancel()
        self._retry = None
        await self._pipeline.aclose()
        if self._retry:  # closing the pipeline gave the read an error
            self._retry.cancel()
