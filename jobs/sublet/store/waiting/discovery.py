"""Find queues that have jobs even if their wake-ups were lost: while a claim with patterns or over 32 queues
waits, search them every 2 s.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from sublet.errors import JobsError
from sublet.protocol import keys
from sublet.protocol.reads import pairs, together
from sublet.protocol.scripts import Call
from sublet.store.waiting.ready_queues import ReadyQueues, Selection

POLL_SECONDS = 2.0
"""Seconds between two searches of all queues, and between two claims without a wake-up."""
POLLED = 500
"""How many queues one call checks for jobs."""
PAGE = 1000
REST = 0.5
SHARE = 0.1
"""The part of the time (0 to 1) that searches may take, unless they are 2 s apart."""

Run = Callable[[Call[Any]], Awaitable[Any]]


async def with_jobs(run: Run, base: str, queues: Sequence[str]) -> list[str]:
    """Return those of up to 500 queues that have queued jobs and are not paused."""
    settings = await run(Call((("HMGET", keys.queues(base), *queues),), list))
    queues = [queue for queue, text in zip(queues, settings, strict=True) if b" paused=" not in (text or b"")]
    structures = [key for queue in queues for key in keys.queued(base, queue)]
    if not structures or not await run(Call((("EXISTS", *structures),), int)):
        return []
    found = await run(together([("EXISTS", key) for key in structures], list))
    return [queue for queue, *exist in zip(queues, found[::2], found[1::2], strict=True) if any(exist)]


def _page(base: str, cursor: int) -> Call[tuple[int, list[str]]]:

    def read(reply: Any) -> tuple[int, list[str]]:
        return int(reply[0]), [field.removesuffix(" jobs") for field in pairs(reply[1])]

    return Call((("HSCAN", keys.backlog(base), cursor, "MATCH", "* jobs", "COUNT", PAGE),), read)


class Discovery:
    """Searches for queues with jobs, for claims under way with patterns or over 32 queues. Calls `on_found`
    for each page of a search, with the partition and those queues on the page that probably have jobs.
    """

    def __init__(self, run: Run, ready: ReadyQueues, on_found: Callable[[str, Sequence[str]], None]) -> None:
        self._run, self._ready, self._on_found = run, ready, on_found
        self._open: Counter[Selection] = Counter()
        self._search: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self._rests_until = 0.0

    @contextlib.contextmanager
    def serving(self, selection: Selection) -> Iterator[None]:
        """In the `with` block, search these queues every 2 s."""
        self._open[selection] += 1
        if self._loop is None or self._loop.done():
            self._loop = asyncio.get_running_loop().create_task(self._repeat())
        try:
            yield
        finally:
            self._open[selection] -= 1
            if not self._open[selection]:
                del self._open[selection]

    async def refresh(self, selection: Selection, moment: float) -> None:
        """Start a search, unless one runs, or one has ended that began since `moment` (`time.monotonic`). Wait
        for it only if no queue with jobs is known, and not while searches pause. Raises JobsError.
        """
        if selection.searched_at < moment:
            self._start()
            if not self._ready.any(selection) and time.monotonic() >= self._rests_until:
                await self.since(selection, moment)

    async def since(self, selection: Selection, moment: float) -> None:
        """Wait until a search that began at `moment` or later has ended; start it if needed. Raises
        JobsError.
        """
        while selection.searched_at < moment:
            await asyncio.shield(self._start())

    def _start(self) -> "asyncio.Task[None]":
        if self._search is None or self._search.done():
            self._search = asyncio.get_running_loop().create_task(self._search_all())
            self._search.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._search

    async def _repeat(self) -> None:
        while self._open:
            oldest = min(self._open, key=lambda selection: selection.searched_at)
            due = oldest.searched_at + POLL_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if oldest in self._open:
                try:
                    await self.since(oldest, max(0.0, due))
                except JobsError:  # the claims raise it
                    await asyncio.sleep(REST)

    async def _search_all(self) -> None:
        await asyncio.sleep(max(0.0, self._rests_until - time.monotonic()))
        began, selections = time.monotonic(), list(self._open)
        for base in dict.fromkeys(base for selection in selections for base in selection.bases):
            await self._search_in(base, [each for each in selections if base in each.bases])
        for selection in selections:
            selection.searched_at = began
        now = time.monotonic()
        self._rests_until = now + min(POLL_SECONDS, (now - began) * (1 - SHARE) / SHARE)

    async def _search_in(self, base: str, selections: Sequence[Selection]) -> None:
        cursor = None
        while cursor != 0:
            cursor, names = await self._run(_page(base, cursor or 0))
            own = [name for name in names if any(name in selection for selection in selections)]
            found = [name for name in own if self._ready.has(base, name)]
            new = [name for name in own if not self._ready.has(base, name) and keys.is_name(name)]
            for i in range(0, len(new), POLLED):
                found += await with_jobs(self._run, base, new[i : i + POLLED])
            self._ready.add(base, [name for name in found if not self._ready.has(base, name)])
            self._on_found(base, found)

    async def aclose(self) -> None:
        """Stop searching."""
        tasks = [task for task in (self._loop, self._search) if task and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
