"""Where the demo's workers come from: an event loop in a thread of its own, on which they are summoned as they are owed."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from sublet.connection.settings import Settings
from sublet.devtools.platform.hands import Hands
from sublet.devtools.platform.saying import Says
from sublet.operations.pool import Pool
from sublet.scaling.invokers.process import Spawned
from sublet.store.store import Store

READY_SECONDS = 30.0
"""How long the namespace and the pool may take to be made."""
STOP_SECONDS = 4.0
"""How long workers may take to give back what they hold before they are killed."""
GONE_SECONDS = 10.0
"""How long it may take until all that was killed is gone."""


class Wings:
    """The pool of one queue, and the process invoker that starts its workers. Nothing here is told what the show will do."""

    def __init__(
        self,
        settings: Settings,
        wish: Pool,
        lease: float,
        hear: Callable[[int, str], None],
        ended: Callable[[int, int], None],
    ) -> None:
        self._settings, self._wish, self._lease, self._hear, self._on_end = settings, wish, lease, hear, ended
        self._thread = threading.Thread(target=self._run, name="wings", daemon=True)
        self._up: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._hands: Hands | None = None
        self.error: BaseException | None = None
        """What it died of."""

    def open(self) -> None:
        """Have the pool, and begin. Raises JobsError."""
        self._thread.start()
        self._up.result(READY_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
        except BaseException as error:  # noqa: BLE001  whoever watches the show is told
            self.error = error
            if not self._up.done():
                self._up.set_exception(error)

    async def _play(self) -> None:
        self._loop = asyncio.get_running_loop()
        hands = self._hands = Hands(
            Store(self._settings), "sublet.devtools.demo.tasks:app", self._wish, Says(lambda said: None), lease=self._lease,
            env={"SUBLET_REDIS_URL": self._settings.redis_url, "SUBLET_NAMESPACE": self._settings.namespace},
            hear=self._heard, ended=self._on_end,
        )  # fmt: skip
        try:
            await hands.store.prepare()
            await hands.pool.put(self._wish.queues)
            self._up.set_result(None)
            over = asyncio.create_task(self._over.wait())
            tasks = [over, *map(asyncio.create_task, hands.loops())]
            done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for task in done:
                task.result()
        finally:
            await hands.aclose()

    def _heard(self, worker: Spawned, line: str) -> None:
        self._hear(worker.pid, line)

    def close(self) -> None:
        """Have all workers go, and kill those that take too long. Interrupted, it kills the rest at once."""
        try:
            self._call(self._over.set)
            self._thread.join(STOP_SECONDS)
        finally:
            if self._hands and self._thread.is_alive():
                self._call(self._hands.kill)
                self._thread.join(GONE_SECONDS)

    def _call(self, what: Callable[[], None]) -> None:
        if self._loop:
            with suppress(RuntimeError):  # it is over
                self._loop.call_soon_threadsafe(what)
