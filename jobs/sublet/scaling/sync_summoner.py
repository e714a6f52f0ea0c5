"""Summoning without an event loop: `summon_once` for a tick, `SyncSummoner` after submits."""

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
from sublet.connection.transport import SyncTransport, follow_sync
from sublet.errors import JobsError, NotFound
from sublet.operations import pools
from sublet.operations.operations import Operations
from sublet.operations.pool import Pool
from sublet.scaling.invokers import Invoker, invokers_of, why_missing
from sublet.scaling.summoner import AGAIN, InvocationBatch, PoolErrors, Summoned, Summoner, take_owed
from sublet.store.store import Store
from sublet.store.sync_store import SyncStore

log = logging.getLogger(__name__)

Invokers = Callable[[], Mapping[str, Invoker]]
PAUSE = 0.05
"""How many seconds the thread waits for further submits before it ends."""
SECONDS = 20.0
"""Seconds after which summoning for some submits is given up."""


class Uninvoked(NamedTuple):
    """A pool with owed workers that this process cannot invoke."""

    pool: str
    owed: int
    why: str

    @property
    def text(self) -> str:
        """The pool, its owed workers and the reason, on one line."""
        return f"pool {self.pool}: {_workers(self.owed)} owed, not invoked from here: {self.why}"


def uninvoked(
    settings: Settings, transport: SyncTransport, invokers: Invokers = invokers_of
) -> list[Uninvoked]:
    """Return the pools with owed workers whose invoker is not in `invokers()`, with the reasons. Changes
    nothing. Raises Unavailable.
    """
    bases, here, found = Operations(settings).bases, invokers(), list[Uninvoked]()
    for pool in follow_sync(transport.run, pools.known(bases)):
        if pool.invoker not in here:
            with contextlib.suppress(NotFound):
                now = follow_sync(transport.run, pools.look(bases, pool)).sum
                if now and now.owed:
                    found.append(Uninvoked(pool.name, now.owed, why_missing(pool.invoker)))
    return found


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count:,} workers"


def summon_once(
    settings: Settings,
    invokers: Invokers = invokers_of,
    transport: SyncTransport | None = None,
    ours: Callable[[Pool], bool] = lambda pool: True,
) -> Summoned:
    """Summon and invoke owed workers once, up to 100 per pool that `ours` accepts, with these invokers; return
    the counts. `transport` stays open (None: its own).

    After the invocations, raises the first error, such as Unavailable; failed invocations are only counted.
    """
    own, here = transport or sync_transport_for(settings), invokers()
    errors = PoolErrors()
    try:
        bases, asked, batches = Operations(settings).bases, 0, list[InvocationBatch]()
        for pool in follow_sync(own.run, pools.known(bases)):
            with errors.catch(pool.name), contextlib.suppress(NotFound):
                if pool.invoker == "none":
                    follow_sync(own.run, pools.sample(bases, pool.name, pool.queues))
                elif pool.invoker in here and ours(pool):
                    asked += 1
                    batches += follow_sync(own.run, take_owed(bases, pool))
            if errors.stop:
                break
    finally:
        if transport is None:
            own.close()
    done = asyncio.run(_invoke(settings, here, batches)) if batches else Summoned()
    errors.throw()
    return replace(done, pools=asked)


async def _invoke(
    settings: Settings, invokers: Mapping[str, Invoker], batches: Sequence[InvocationBatch]
) -> Summoned:
    store = Store(settings)
    summoner = Summoner(store, invokers)
    try:
        return await summoner.invoke(batches)
    finally:
        await summoner.aclose()
        await store.aclose()


class SyncSummoner:
    """Summons workers after submits, in a thread that ends when it has nothing to do. The process's end waits
    for the thread, up to some 30 s.
    """

    def __init__(self, settings: Settings, invokers: Invokers = invokers_of) -> None:
        self._settings, self._invokers = settings, invokers
        self._lock = threading.Lock()
        self._queues: set[str] = set()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._said_at = float("-inf")

    def nudge(self, queues: Iterable[str]) -> None:
        """Begin to summon workers of the pools that serve these queues, which have new jobs. Safe from any
        thread.
        """
        self._reset_after_fork()
        with self._lock:
            self._queues.update(queues)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="sublet-summons")
                try:
                    thread.start()
                # No more threads, or the interpreter is ending
                except RuntimeError as error:
                    self._warn("cannot summon workers: %s", error)
                else:
                    self._thread = thread

    def close(self) -> None:
        """Wait until the workers for all submits so far are invoked, or given up."""
        self._reset_after_fork()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _reset_after_fork(self) -> None:
        if self._process != os.getpid():
            self._lock, self._queues, self._thread, self._process = threading.Lock(), set(), None, os.getpid()

    def _warn(self, words: str, *more: object) -> None:
        now = time.monotonic()
        if now - self._said_at >= AGAIN:
            self._said_at = now
            log.warning(words, *more)

    def _run(self) -> None:
        try:
            asyncio.run(self._handle_nudges())
        except (JobsError, TimeoutError) as error:
            log.warning(
                "cannot summon workers: %s", str(error) or f"summoning took longer than {SECONDS:g} s"
            )
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread, self._queues = None, set()

    def _done(self) -> bool:
        with self._lock:
            if not self._queues:
                self._thread = None
            return not self._queues

    async def _handle_nudges(self) -> None:
        store = Store(self._settings)
        summoner = Summoner(store, self._invokers())
        try:
            while not self._done():
                async with asyncio.timeout(SECONDS):
                    with self._lock:
                        queues, self._queues = self._queues, set()
                    summoner.nudge(queues)
                    await summoner.finish()
                    await asyncio.sleep(PAUSE)
        finally:
            await summoner.aclose()
            await store.aclose()


def attach(store: SyncStore) -> SyncSummoner:
    """Make a store summon workers after each submit. Return the summoner, which the caller must close."""
    summoner = SyncSummoner(store.settings)
    store.nudge = summoner.nudge
    return summoner
