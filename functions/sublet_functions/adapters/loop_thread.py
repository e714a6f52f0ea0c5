"""An event loop in a thread of its own, beside the threads of a server that knows no event loop.

Every wait of such a thread is cut into slices: at each it looks whether whoever it waits for has gone, and whether the loop still
turns.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from sublet_functions.api.auth import Principal
from sublet_functions.api.request import Reply, Request

log = logging.getLogger(__name__)

T = TypeVar("T")

STARTING = 10.0
"""Seconds that the loop may take to be there."""
SLICE = 0.5
"""Seconds after which who waits looks around."""
STUCK = 30.0
"""Seconds without a turn of the loop after which nobody waits for it any more: something blocks it."""
LAST_RESORT = 2.0
"""Seconds that what was called off may take to clean up, and as many to give back what it brought all the same."""
LOOK = 1.0
"""Seconds after which it is looked whether threads are held up for too long."""
CLOSING = 10.0
"""Seconds that an orderly exit waits for the workers that are at work here, and for connections to close."""


class Core(Protocol):
    """What answers on the loop: `Hosted`, or a stand-in."""

    async def answer(self, request: Request, who: Principal | None = None) -> Reply:
        """Answer one request; raises nothing but CancelledError."""
        ...

    def hurry(self) -> None:
        """Have nobody wait any more."""
        ...

    async def finish(self) -> None:
        """Have workers finish or give back."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


class Silent(Exception):
    """The loop does not answer, and why."""


class Left(Exception):
    """Whoever was waited for has hung up."""


class Beside:
    """The loop of one process, and what answers there, which is made there. It comes when it is started, and goes at exit.

    `ending` says that the server has been told to stop, and that some wait still.
    """

    def __init__(self, make: Callable[[], Core], ending: Callable[[], bool] = lambda: False) -> None:
        self._make, self._ending = make, ending
        self._pid = os.getpid()
        self._starting = threading.Lock()
        self._up = threading.Event()
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finishing: asyncio.Task[None] | None = None
        self._due: dict[object, tuple[float, Callable[[], object]]] = {}
        self._dues = threading.Lock()
        self._looking = False
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event
        self.core: Core
        self.turns = 0
        """How often somebody who asked for a sign of life was given one."""

    def start(self) -> None:
        """See that the loop is there. Raises Silent when it will not come."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._up.clear()
                self._thread = threading.Thread(target=self._run, name="sublet", daemon=True)
                self._thread.start()
        if not self._up.wait(STARTING):
            raise Silent(
                "the event loop of this process did not start: may the server's processes have threads?"
            )

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._live())
        finally:
            loop.close()

    async def _live(self) -> None:
        self._loop, self._over, self.core = asyncio.get_running_loop(), asyncio.Event(), self._make()
        self._finishing, self._looking = None, False
        atexit.register(self.close)
        self._up.set()
        await self._over.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await self._end()
                await self.core.aclose()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=LAST_RESORT)

    def close(self) -> None:
        """Have the loop end: workers that are at work there give back what they hold. What a fork has copied is none of ours."""
        atexit.unregister(self.close)
        if self._thread is None or not self._thread.is_alive() or os.getpid() != self._pid:
            return
        with contextlib.suppress(RuntimeError):  # it ends already
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(CLOSING + LAST_RESORT)

    def soon(self, do: Callable[[], object]) -> None:
        """Have something done on the loop. Raises Silent if that has ended."""
        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:
            raise Silent("this process is about to end") from None

    def turn(self) -> None:
        """Give a sign of life."""
        self.turns += 1

    def heed(self) -> bool:
        """Is the server about to stop? Then nobody waits any more, and workers finish or give back. Raises Silent."""
        ending = self._ending()
        if ending:
            self.soon(self._end)
        return ending

    def _end(self) -> asyncio.Task[None]:
        self.core.hurry()  # each time: somebody may have come to wait since
        if self._finishing is None:
            self._finishing = self.begin(self.core.finish())
        return self._finishing

    def expect(self, what: object, seconds: float, otherwise: Callable[[], object]) -> None:
        """Have something done on the loop unless `what` is `met` in some seconds. Raises Silent."""
        with self._dues:
            self._due[what] = time.monotonic() + seconds, otherwise
            begins, self._looking = not self._looking, True
        if begins:
            self.soon(self._look)

    def met(self, what: object) -> None:
        """What was expected has come: when this returns, what would have been done otherwise is not done any more."""
        with self._dues:
            self._due.pop(what, None)

    def _look(self) -> None:
        with self._dues:
            for what, (until, otherwise) in tuple(self._due.items()):
                if until <= time.monotonic():
                    del self._due[what]
                    otherwise()
            self._looking = bool(self._due)
            if self._looking:
                self._loop.call_later(LOOK, self._look)

    def begin(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task; to be called on the loop."""
        task = self._loop.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Errands:
    """A thread that waits for the loop, and meanwhile does what the loop asks of it. `left` says: it need wait no more."""

    def __init__(self, beside: Beside, left: Callable[[], bool] = lambda: False) -> None:
        self.beside, self.left = beside, left
        self._news: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def wait(
        self,
        doing: Coroutine[Any, Any, T],
        seconds: float | None = None,
        undo: Callable[[T], Coroutine[Any, Any, None]] | None = None,
    ) -> T:
        """Have the loop do something, and wait for what comes of it. Raises what that raises; Silent; and Left.

        Whatever ends the waiting sooner calls it off: if it came to something all the same, that is undone.
        """
        begun: list[asyncio.Task[T]] = []

        def begin() -> None:
            begun.append(self.beside.begin(doing))
            begun[0].add_done_callback(lambda task: self._news.put(None))

        try:
            self.beside.soon(begin)
        except Silent:
            doing.close()
            raise
        try:
            self._attend(begun, seconds)
        except BaseException:
            self._call_off(begun, undo)
            raise
        try:
            return begun[0].result()
        except asyncio.CancelledError:
            raise Silent("this process is about to end") from None

    def _attend(self, begun: list[asyncio.Task[T]], seconds: float | None) -> None:
        """Do errands until it is done."""
        until = time.monotonic() + seconds if seconds is not None else None
        turns, unmoved = -1, 0
        while not (begun and begun[0].done()):
            try:
                errand = self._news.get(timeout=SLICE)
            except Empty:
                self.beside.heed()
                if self.left():
                    raise Left from None
                unmoved = unmoved + 1 if turns == self.beside.turns else 0
                turns = self.beside.turns
                if unmoved * SLICE >= STUCK:
                    raise Silent(
                        f"the event loop of this process has not turned for {STUCK:g} s: a task blocks it"
                    ) from None
                if until is not None and time.monotonic() >= until:
                    raise Silent(f"nothing came for {seconds:g} s") from None
                self.beside.soon(self.beside.turn)
            else:
                if errand:
                    errand()

    def _call_off(
        self, begun: list[asyncio.Task[T]], undo: Callable[[T], Coroutine[Any, Any, None]] | None
    ) -> None:
        """Have it cancelled, and what it brought undone; that is waited for, for the process may be frozen afterwards."""
        over = threading.Event()

        async def call_off() -> None:
            (task,) = begun
            task.cancel()
            await asyncio.wait(
                [task], timeout=STUCK
            )  # what comes late is undone, too, though nobody waits for that any more
            if undo and task.done() and not task.cancelled() and task.exception() is None:
                await undo(task.result())

        def begin() -> None:
            self.beside.begin(call_off()).add_done_callback(lambda task: over.set())

        with contextlib.suppress(Silent):
            self.beside.soon(begin)
            over.wait(2 * LAST_RESORT)

    async def do(self, errand: Callable[[], T]) -> T:
        """On the loop: have the thread do something, and give what comes of it."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                said = partial(done.set_result, errand())
            except Exception as error:  # noqa: BLE001  it is raised where it is waited for
                said = partial(done.set_exception, error)
            self.beside.soon(lambda: None if done.done() else said())

        self._news.put(run)
        return await done
