"""The requests of open pages of the dashboard, made without a browser, when its modules would make them."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

CALM, CALM_MOST, BUSY_MOST, BUSY_FIRST, BUSY_LAST, MARGIN, COSTLY = 0.25, 1.0, 6.0, 2.0, 8.0, 0.05, 30.0
"""Of live.js and sharing.js, in seconds."""
PATIENCE = {"stats": 60.0, "metrics": 60.0} | dict.fromkeys(
    ("queues", "tasks", "workers", "pools", "schedules"), COSTLY
)


@dataclass(frozen=True)
class View:
    """What a view asks, as its module does."""

    paths: tuple[str, ...]
    every_live: float
    rest: float
    touched: Callable[[str, str], bool] = lambda state, code: True
    beside: tuple[tuple[str, float], ...] = ()
    """Paths that it reads with the others, if they were read longer ago than so many seconds."""


VIEWS = {
    "overview": View(("stats",), 20, 2, beside=(("metrics", 30),)),
    "jobs": View(("jobs?limit=50",), 120, 2, beside=(("stats", 5),)),
    "running": View(("jobs?state=running&limit=50",), 120, 2, beside=(("stats", 5),)),
    "failures": View(
        ("jobs?state=dead&limit=200",), 120, 10, lambda state, code: state == "dead" or code == "retry"
    ),
    "queues": View(("queues?limit=200",), 30, 2, beside=(("metrics", 15),)),
    "schedules": View(("schedules?limit=200",), 60, 3, lambda state, code: state == "queued"),
    "workers": View(("workers", "pools"), 15, 3, lambda state, code: state == "running"),
}
MIX = (
    "overview",
    "jobs",
    "running",
    "failures",
    "queues",
    "schedules",
    "workers",
    "jobs",
    "overview",
    "jobs",
)


class Page:
    """One open page."""

    def __init__(self, session: aiohttp.ClientSession, url: str, view: View) -> None:
        self.session, self.url, self.view = session, url, view
        self.heard_at = self.read_at = self.busy_since = float("-inf")
        self.changed_at = time.monotonic()
        self.reload = asyncio.Event()
        self.telling: asyncio.TimerHandle | None = None
        self.is_touched = False
        self.busy = BUSY_FIRST
        self.read_of: dict[str, float] = {}
        self.asked = 0

    async def run(self) -> None:
        """Show the view until cancelled."""
        self.reload.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follow())
            tasks.create_task(self.read_again())

    async def follow(self) -> None:
        """Read the event stream."""
        headers = {"Accept": "text/event-stream"}
        while True:
            async with self.session.get(f"{self.url}/events", headers=headers) as answer:
                self.changed_at = time.monotonic()
                self.reload.set()
                async for line in answer.content:
                    if line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        self.hear(self.view.touched(event["state"], event["code"]))

    def hear(self, is_touched: bool) -> None:
        """Note an event, as live.js."""
        now = self.heard_at = time.monotonic()
        self.is_touched = self.is_touched or is_touched
        self.busy_since = now if self.busy_since == float("-inf") else self.busy_since
        if self.telling:
            self.telling.cancel()
        wait = max(0.0, min(CALM, self.busy_since + self.busy - now))
        self.telling = asyncio.get_running_loop().call_later(wait, self.tell)

    def tell(self) -> None:
        """Tell the view that it has changed, as live.js."""
        now = time.monotonic()
        is_calm = now - self.heard_at >= CALM
        if self.is_touched:
            self.reload.set()
        self.busy_since = float("-inf") if is_calm else now
        self.busy = BUSY_FIRST if is_calm else min(2 * self.busy, BUSY_LAST)
        self.telling = None
        if not is_calm or now - self.heard_at < COSTLY:
            wait = COSTLY if is_calm else CALM
            self.telling = asyncio.get_running_loop().call_later(wait, self.tell)
        else:
            self.is_touched = False

    async def read_again(self) -> None:
        """Read the view when it has changed or is old, not more often than it allows."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self.read_at + self.view.every_live - time.monotonic())):
                    await self.reload.wait()
            await asyncio.sleep(max(0.0, self.read_at + self.view.rest - time.monotonic()))
            self.reload.clear()
            self.read_at = time.monotonic()
            for path in self.view.paths:
                await self.ask(path)
            for path, seconds in self.view.beside:
                if time.monotonic() - self.read_of.get(path, float("-inf")) >= seconds:
                    await self.ask(path)

    async def ask(self, path: str) -> None:
        """Ask as api.js does."""
        now = time.monotonic()
        known, calm = max(0.0, now - self.changed_at - MARGIN), now - self.heard_at
        most = min(known, min(CALM_MOST, calm - MARGIN) if calm >= CALM else BUSY_MOST)
        costly = max(most, min(PATIENCE.get(path.partition("?")[0], most), known))
        self.read_of[path] = now
        self.asked += 1
        headers = {"Sublet-Shared": f"{most:.3f}, {costly:.3f}"}
        async with self.session.get(f"{self.url}/{path}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
