"""The requests of open pages of the dashboard, made without a browser, when its modules would make them."""

import asyncio
import contextlib
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

SOON, CALM, LATEST, PACE, RECALL, TIMES, MARGIN = 0.25, 3.0, 1.0, 6.0, 20.0, 3, 0.05
CALM_MOST, RUSH_MOST, COSTLY = 2.0, 5.0, 60.0
GATHER = "0.5"
LISTS = re.compile(r"stats|metrics|queues|tasks|workers|pools|schedules|queues/[^/]+/groups")
TABLE, SOONEST, SLOW = 200, 5.0, 20.0


@dataclass(frozen=True)
class View:
    """What a view asks, as its module does."""

    paths: tuple[str, ...]
    every_live: float
    rest: float
    touched: Callable[[str, str], bool] = lambda state, code: True
    beside: tuple[tuple[str, float], ...] = ()
    """Paths that it reads with the others, if they were read longer ago than so many seconds."""
    most: int = 0


VIEWS = {
    "overview": View(("stats",), 20, 2, beside=(("metrics", 30), ("history?span=hour", 60))),
    "jobs": View(("jobs?limit=50",), 120, 2, beside=(("stats", 5),)),
    "running": View(("jobs?state=running&limit=50",), 120, 2, beside=(("stats", 5),)),
    "failures": View(
        ("jobs?state=dead&limit=200",),
        120,
        10,
        lambda state, code: state == "dead" or code == "retry",
        most=1000,
    ),
    "queues": View(("queues?limit=200",), 30, 2, beside=(("metrics", 15),)),
    "queue": View(("queues/grouped", "queues/grouped/groups?limit=100"), 30, 2, beside=(("metrics", 15),)),
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
        self.heard_at = self.read_at = self.untold_since = float("-inf")
        self.changed_at = time.monotonic()
        self.reload = asyncio.Event()
        self.telling: asyncio.TimerHandle | None = None
        self.told: list[float] = []
        self.is_touched = self.is_rush = False
        self.rest = view.rest
        self.read_of: dict[str, float] = {}
        self.asked = 0

    async def run(self) -> None:
        self.reload.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follow())
            tasks.create_task(self.read_again())

    async def follow(self) -> None:
        headers = {"Accept": "text/event-stream", "Sublet-Shared": GATHER}
        while True:
            async with self.session.get(f"{self.url}/events", headers=headers) as answer:
                if "Last-Event-ID" not in headers:
                    self.changed_at = time.monotonic()
                    self.reload.set()
                async for line in answer.content:
                    if line.startswith(b"id: "):
                        headers["Last-Event-ID"] = line[4:].decode().strip()
                    if line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        self.hear(self.view.touched(event["state"], event["code"]))

    def hear(self, is_touched: bool) -> None:
        now = self.heard_at = time.monotonic()
        self.is_touched = self.is_touched or is_touched
        self.untold_since = now if self.untold_since == float("-inf") else self.untold_since
        self.told = [at for at in self.told if at > now - RECALL]
        self.is_rush = len(self.told) >= TIMES
        if self.is_rush:
            self.tell_in(min(CALM, self.told[-1] + PACE - now))
        else:
            self.tell_in(min(SOON, self.untold_since + LATEST - now))

    def tell_in(self, wait: float) -> None:
        if self.telling:
            self.telling.cancel()
        self.telling = asyncio.get_running_loop().call_later(max(0.0, wait), self.tell)

    def tell(self) -> None:
        now, calm = time.monotonic(), time.monotonic() - self.heard_at
        self.is_rush = self.is_rush and calm < CALM
        self.told.append(now)
        self.untold_since, self.telling = float("-inf"), None
        if self.is_touched:
            self.reload.set()
        if not self.is_exact():
            self.tell_in(CALM - calm)
        elif calm < COSTLY:
            self.tell_in(COSTLY)
        else:
            self.is_touched = False

    def is_exact(self) -> bool:
        return not self.is_rush and time.monotonic() - self.heard_at >= SOON

    async def read_again(self) -> None:
        """Read the view when it has changed or is old, not more often than it allows."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self.read_at + self.view.every_live - time.monotonic())):
                    await self.reload.wait()
            await asyncio.sleep(max(0.0, self.read_at + self.rest - time.monotonic()))
            self.reload.clear()
            self.read_at = time.monotonic()
            for path in self.view.paths:
                await self.read(path)
            for path, seconds in self.view.beside:
                if time.monotonic() - self.read_of.get(path, float("-inf")) >= seconds:
                    await self.ask(path)

    async def read(self, path: str) -> None:
        """Read a list, with its following pages if the view reads them."""
        most, count, cursor = self.view.most, 0, ""
        soonest = time.time() + SOONEST
        while True:
            found = await self.ask(f"{path}&cursor={cursor}" if cursor else path)
            count += len(found.get("jobs", ())) if most else 0
            cursor = found.get("cursor") or ""
            if not cursor or count >= most:
                break
        period = SLOW * math.ceil(count / TABLE)
        self.rest = SOONEST + period - soonest % period if count > TABLE else self.view.rest

    async def ask(self, path: str) -> dict[str, Any]:
        now = time.monotonic()
        known = max(0.0, now - self.changed_at - MARGIN)
        most = min(known, min(CALM_MOST, now - self.heard_at - MARGIN) if self.is_exact() else RUSH_MOST)
        costly = max(most, min(COSTLY if LISTS.fullmatch(path.partition("?")[0]) else most, known))
        self.read_of[path] = now
        self.asked += 1
        headers = {"Sublet-Shared": f"{most:.3f}, {costly:.3f}"}
        async with self.session.get(f"{self.url}/{path}", headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            body = await answer.read()
        return json.loads(body) if self.view.most else {}
