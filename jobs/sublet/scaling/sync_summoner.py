"""Summoning for code without an event loop: the one place where a loop is started for it, if anybody is to be summoned.

A submit has been acknowledged by then: nothing here can hold it up or make it fail.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sublet.connection.routing import sync_transport_for
from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport
from sublet.errors import JobsError, NotFound
from sublet.operations import pools
from sublet.operations.operations import Operations
from sublet.protocol.plan import follow_sync
from sublet.scaling.invokers import Invoker, invokers_of, lacking
from sublet.scaling.summoner import AGAIN, Order, Summoned, Summoner, Troubles, owed
from sublet.store.store import Store

log = logging.getLogger(__name__)

Invokers = Callable[[], Mapping[str, Invoker]]
"""Makes invokers, for one event loop."""
PAUSE = 0.05
"""Seconds for which the thread waits for more to do."""
SECONDS = 20.0
"""Seconds that the thread may take for one round: what does not answer ends by itself before."""


class Uncalled(NamedTuple):
    """A pool that is owed workers which this process cannot call."""

    pool: str
    owed: int
    why: str

    @property
    def words(self) -> str:
        """In a line."""
        return f"pool {self.pool}: {_workers(self.owed)} owed, not called from here: {self.why}"


def uncalled(
    settings: Settings, transport: SyncTransport, invokers: Invokers = invokers_of
) -> list[Uncalled]:
    """The pools that are owed workers by an invoker that is not here. A look: nothing is written. Raises Unavailable."""
    bases, hired, found = Operations(settings).bases, invokers(), list[Uncalled]()
    for pool in follow_sync(transport.run, pools.known(bases)):
        if pool.invoker not in hired:
            with contextlib.suppress(NotFound):  # removed by now
                now = follow_sync(transport.run, pools.look(bases, pool)).sum
                if now and now.owed:
                    found.append(Uncalled(pool.name, now.owed, lacking(pool.invoker)))
    return found


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count:,} workers"


def summon_once(
    settings: Settings, invokers: Invokers = invokers_of, transport: SyncTransport | None = None
) -> Summoned:
    """Ask about all pools once, and have invoked what they are owed. Raises Unavailable when Redis does not answer.

    An event loop is started only where some pool is owed a worker. A pool that cannot be asked about keeps nobody from the
    others: why it cannot is raised when those are seen to.
    """
    own, hired, troubles = transport or sync_transport_for(settings), invokers(), Troubles()
    try:
        bases, asked, orders = Operations(settings).bases, 0, list[Order]()
        for pool in follow_sync(own.run, pools.known(bases)):
            with troubles.of(pool.name), contextlib.suppress(NotFound):  # removed by now
                if pool.invoker == "none":
                    follow_sync(own.run, pools.sample(bases, pool.name, pool.queues))
                elif pool.invoker in hired:
                    asked += 1
                    orders += follow_sync(own.run, owed(bases, pool))
            if troubles.are_all:
                break
    finally:
        if transport is None:
            own.close()
    done = asyncio.run(_carry_out(settings, hired, orders)) if orders else Summoned()
    troubles.throw()
    return replace(done, pools=asked)


async def _carry_out(
    settings: Settings, invokers: Mapping[str, Invoker], orders: Sequence[Order]
) -> Summoned:
    store = Store(settings)
    summoner = Summoner(store, invokers)
    try:
        return await summoner.carry_out(orders)
    finally:
        await summoner.aclose()
        await store.aclose()


class SyncSummoner:
    """A `Summoner` for code without an event loop: nudges are seen to by a thread, which lives as long as there are any.

    Its process waits for that thread before it ends, for some seconds at most.
    """

    def __init__(self, settings: Settings, invokers: Invokers = invokers_of) -> None:
        self._settings, self._invokers = settings, invokers
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._said_at = float("-inf")

    def nudge(self, queues: Iterable[str]) -> None:
        """Something was put into these queues. Returns at once; what comes of it is seen to beside. Safe from any thread."""
        self._see_whose_process_it_is()
        with self._lock:
            self._queues.update(queues)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="sublet-summons")
                try:
                    thread.start()
                except RuntimeError as error:  # no more threads, or the interpreter is at its end; the job is stored all the same
                    self._say("cannot summon workers: %s", error)
                else:
                    self._thread = thread

    def close(self) -> None:
        """Wait until what was nudged is seen to."""
        self._see_whose_process_it_is()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _see_whose_process_it_is(self) -> None:
        """Start anew in a process that is a fork: the thread is its parent's, and so may the lock be."""
        if self._process != os.getpid():
            self._lock, self._queues, self._thread, self._process = threading.Lock(), set(), None, os.getpid()

    def _say(self, words: str, *more: object) -> None:
        """Warn, once a minute at most."""
        now = time.monotonic()
        if now - self._said_at >= AGAIN:
            self._said_at = now
            log.warning(words, *more)

    def _run(self) -> None:
        try:
            asyncio.run(self._see_to_all())
        except (JobsError, TimeoutError) as error:
            log.warning("cannot summon workers: %s", str(error) or f"no end in {SECONDS:g} s")
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread, self._queues = None, set()

    def _done(self) -> bool:
        """Is there nothing more to do? Then this thread ends, and the next nudge has another one."""
        with self._lock:
            if not self._queues:
                self._thread = None
            return not self._queues

    async def _see_to_all(self) -> None:
        store = Store(self._settings)
        summoner = Summoner(store, self._invokers())
        try:
            while not self._done():
                async with asyncio.timeout(SECONDS):
                    with self._lock:
                        queues, self._queues = self._queues, set()
                    summoner.nudge(queues)
                    await summoner.settle()
                    await asyncio.sleep(PAUSE)
        finally:
            await summoner.aclose()
            await store.aclose()
