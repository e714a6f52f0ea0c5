"""An event loop in a thread, for servers whose threads have none."""

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

from sublet_functions.http.auth import Principal
from sublet_functions.http.request import Request
from sublet_functions.http.response import DISCARD_SECONDS, Response

log = logging.getLogger(__name__)

T = TypeVar("T")

START_SECONDS = 10.0
CHECK_SECONDS = 0.5
"""Seconds between two checks of loop and client by a waiting thread."""
STUCK_SECONDS = 30.0
"""Calls fail if the loop has not run for so many seconds."""
DEADLINE_CHECK_SECONDS = 1.0
CLOSE_SECONDS = 10.0


class Application(Protocol):
    """The API, which runs on the loop."""

    async def answer(self, request: Request, principal: Principal | None = None) -> Response:
        """Answer one request; raises only CancelledError."""
        ...

    def hurry(self) -> None:
        """Answer all waiting requests now."""
        ...

    async def finish(self) -> None:
        """Start no more workers; let running ones finish or release their jobs."""
        ...

    async def aclose(self) -> None:
        """End the workers in this process, and close all connections."""
        ...


class LoopUnresponsive(Exception):
    """The loop does not answer; the message has the reason."""


class ClientDisconnected(Exception):
    """The client disconnected while its request was being answered."""


class LoopThread:
    """A process's event loop, in its own thread, and the application on it. Closed when the process exits.

    `make` makes the application, on the loop. `is_ending` returns whether the server is stopping.
    """

    def __init__(
        self, make: Callable[[], Application], is_ending: Callable[[], bool] = lambda: False
    ) -> None:
        self._make = make
        self._is_ending = is_ending
        self._pid = os.getpid()
        self._starting = threading.Lock()
        self._up = threading.Event()
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finishing: asyncio.Task[None] | None = None
        self._deadlines: dict[object, tuple[float, Callable[[], object]]] = {}
        self._deadlines_lock = threading.Lock()
        self._checking = False
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event
        self.application: Application
        self.rounds = 0

    def start(self) -> None:
        """Start the thread and the loop unless they run; wait for them. Raises LoopUnresponsive after 10 s."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._up.clear()
                self._thread = threading.Thread(target=self._run, name="sublet", daemon=True)
                self._thread.start()
        if not self._up.wait(START_SECONDS):
            raise LoopUnresponsive(
                "the event loop of this process did not start: allow threads in the server's processes"
            )

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._main())
        finally:
            loop.close()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self.application = self._make()
        self._finishing = None
        self._checking = False
        atexit.register(self.close)
        self._up.set()
        await self._over.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._end()
                await self.application.aclose()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=DISCARD_SECONDS)

    def close(self) -> None:
        """End the loop and its workers, and wait up to 12 s. Leave a parent process's loop alone."""
        atexit.unregister(self.close)
        if self._thread is None or not self._thread.is_alive() or os.getpid() != self._pid:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(CLOSE_SECONDS + DISCARD_SECONDS)

    def soon(self, do: Callable[[], object]) -> None:
        """Call a function on the loop, from any thread. Raises LoopUnresponsive if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:
            raise LoopUnresponsive(
                "this process is ending and did not answer: send the request again"
            ) from None

    def ping(self) -> None:
        """Count a round of the loop: waiting threads see that it is not blocked."""
        self.rounds += 1

    def check_ending(self) -> bool:
        """Return whether the server is stopping; if so, begin to answer waiting requests and to end workers. Raises
        LoopUnresponsive if the loop has ended.
        """
        ending = self._is_ending()
        if ending:
            self.soon(self._end)
        return ending

    def _end(self) -> asyncio.Task[None]:
        self.application.hurry()  # requests may wait since the last call
        if self._finishing is None:
            self._finishing = self.begin(self.application.finish())
        return self._finishing

    def set_deadline(self, key: object, seconds: float, otherwise: Callable[[], object]) -> None:
        """Call `otherwise` on the loop after `seconds`, up to 1 s late, unless this key's deadline is set again
        or cleared before. Raises LoopUnresponsive.
        """
        with self._deadlines_lock:
            self._deadlines[key] = time.monotonic() + seconds, otherwise
            starts = not self._checking
            self._checking = True
        if starts:
            self.soon(self._check_deadlines)

    def clear_deadline(self, key: object) -> None:
        """Remove the deadline with this key, if any."""
        with self._deadlines_lock:
            self._deadlines.pop(key, None)

    def _check_deadlines(self) -> None:
        with self._deadlines_lock:
            for key, (until, otherwise) in tuple(self._deadlines.items()):
                if until <= time.monotonic():
                    del self._deadlines[key]
                    otherwise()
            self._checking = bool(self._deadlines)
            if self._checking:
                self._loop.call_later(DEADLINE_CHECK_SECONDS, self._check_deadlines)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine as an asyncio task, and return it. For calls on the loop."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class LoopCall:
    """A call from a server's thread to the loop. While the thread waits, it runs functions that the loop
    gives it.

    `has_left` returns whether the client has disconnected: then the thread stops waiting.
    """

    def __init__(self, thread: LoopThread, has_left: Callable[[], bool] = lambda: False) -> None:
        self.thread = thread
        self.has_left = has_left
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        seconds: float | None = None,
        undo: Callable[[T], Coroutine[Any, Any, None]] | None = None,
    ) -> T:
        """Run a coroutine on the loop; wait for its result and return it.

        Raises the coroutine's exceptions, ClientDisconnected, and LoopUnresponsive, also after `seconds`. If
        the wait ends early, the coroutine is cancelled; if it has a result all the same, `undo` gets that.
        """
        begun: list[asyncio.Task[T]] = []

        def begin() -> None:
            begun.append(self.thread.begin(coroutine))
            begun[0].add_done_callback(lambda task: self._inbox.put(None))

        try:
            self.thread.soon(begin)
        except LoopUnresponsive:
            coroutine.close()
            raise
        try:
            self._wait(begun, seconds)
        except BaseException:
            self._cancel(begun, undo)
            raise
        try:
            return begun[0].result()
        except asyncio.CancelledError:
            raise LoopUnresponsive(
                "this process is ending and did not answer: send the request again"
            ) from None

    def _wait(self, begun: list[asyncio.Task[T]], seconds: float | None) -> None:
        until = time.monotonic() + seconds if seconds is not None else None
        rounds = -1
        unmoved = 0
        while not (begun and begun[0].done()):
            try:
                function = self._inbox.get(timeout=CHECK_SECONDS)
            except Empty:
                self.thread.check_ending()
                if self.has_left():
                    raise ClientDisconnected from None
                unmoved = unmoved + 1 if rounds == self.thread.rounds else 0
                rounds = self.thread.rounds
                if unmoved * CHECK_SECONDS >= STUCK_SECONDS:
                    raise LoopUnresponsive(
                        f"the event loop of this process has not run for {STUCK_SECONDS:g} s: does an async task block it? "
                        "Make it a plain function"
                    ) from None
                if until is not None and time.monotonic() >= until:
                    raise LoopUnresponsive(
                        f"an answer took more than {seconds:g} s: Redis, or this process, is too slow"
                    ) from None
                self.thread.soon(self.thread.ping)
            else:
                if function:
                    function()

    def _cancel(
        self, begun: list[asyncio.Task[T]], undo: Callable[[T], Coroutine[Any, Any, None]] | None
    ) -> None:
        over = threading.Event()

        async def cancel() -> None:
            (task,) = begun
            task.cancel()
            # also after the thread's wait
            await asyncio.wait([task], timeout=STUCK_SECONDS)
            if undo and task.done() and not task.cancelled() and task.exception() is None:
                await undo(task.result())

        def begin() -> None:
            self.thread.begin(cancel()).add_done_callback(lambda task: over.set())

        with contextlib.suppress(LoopUnresponsive):
            self.thread.soon(begin)
            over.wait(2 * DISCARD_SECONDS)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a function, from the loop, in the thread that waits in `run`; return its result."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                report = partial(done.set_result, function())
            except Exception as error:  # noqa: BLE001  raised where it is awaited
                report = partial(done.set_exception, error)
            self.thread.soon(lambda: None if done.done() else report())

        self._inbox.put(run)
        return await done
