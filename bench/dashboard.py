"""Measure what open pages of the dashboard cost: `python3 bench/dashboard.py [--json] [--jobs 100000] [--pages 50]`.

A real `sublet serve` and a real Redis with 100,000 jobs in 500 queues, 200 workers and 1,000 schedules, while jobs are
submitted, run and completed at a steady rate. The pages are simulated: each follows the event stream and asks what its view
asks, when `live.js`, `sharing.js` and `main.js` would. For no page, one, and all, and with and without events:

- commands: those that Redis ran a second (INFO commandstats), less those without a page;
- requests: those of the pages a second;
- server: share of one core that the server used.

`held_ms`: the longest that one command held Redis (SLOWLOG, which counts a script as one). It takes about
(4 + 2 × views) × `--seconds`, and the time to make the jobs.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

import aiohttp
from over_http import Api, _serving

from sublet import Settings
from sublet.connection.settings import connect_sync
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.model import Card, Completion, Lease
from sublet.protocol import verbs
from sublet.store.store import Store

CALM, CALM_MOST, BUSY_MOST, BUSY_FIRST, BUSY_LAST, MARGIN, COSTLY = 0.25, 1.0, 6.0, 2.0, 8.0, 0.05, 30.0
"""Of live.js and sharing.js, in seconds."""
PATIENCE = {"stats": 60.0, "metrics": 60.0} | dict.fromkeys(
    ("queues", "tasks", "workers", "pools", "schedules"), COSTLY
)
GOAL_COMMANDS, GOAL_HELD = 100.0, 5.0
SLOW_US = 1000
CHUNK = 1000
Found = dict[str, float]


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


async def fill(store: Store, url: str, asked: argparse.Namespace) -> None:
    """Make jobs of all states, workers and schedules."""
    operations = store.operations
    names = [f"queue-{n}" for n in range(asked.queues)]
    payload = json.dumps({"text": "x" * 150}).encode()
    for start in range(0, asked.jobs, CHUNK):
        await store.submit([
            operations.submission("noop", payload, names[n % len(names)], "") for n in range(start, start + CHUNK)
        ])  # fmt: skip
    for worker in range(asked.workers):
        about = json.dumps({"host": "bench", "slots": 10, "queues": names[worker::200]}).encode()
        await store.enlist(Card(f"worker-{worker}", "1", "", about))
        await claim(store, f"worker-{worker}", names[worker::200][:8] or names[:1], 2)
    async with aiohttp.ClientSession() as session:
        for n in range(asked.schedules):
            async with session.put(
                f"{url}/schedules/s-{n}", json={"task": "noop", "every": 3600 + n}
            ) as answer:
                assert answer.status == 201, await answer.text()


async def claim(store: Store, worker: str, queues: list[str], most: int) -> list[Lease]:
    """Claim up to `most` jobs for ten minutes."""
    base, claim_id = store.operations.bases[0], uuid.uuid4().hex
    found = await store.run(
        verbs.claim(base, claim_id=claim_id, worker=worker, lease=600, n=most, queues=queues)
    )
    return list(found.leases)


async def events(store: Store, rate: float) -> None:
    """Submit, claim and complete `rate` jobs a second."""
    base, at = store.operations.bases[0], time.monotonic()
    while True:
        await store.submit([store.operations.submission("noop", b"{}", "steady", "")])
        leases = await claim(store, "bench", ["steady"], 1)
        await store.run(verbs.complete(base, [Completion(lease, b"1") for lease in leases]))
        at += 1 / rate
        await asyncio.sleep(max(0.0, at - time.monotonic()))


@contextlib.asynccontextmanager
async def beside(*runs: Any) -> AsyncIterator[None]:
    """Run coroutines during the block. Raises what they raise."""
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Bench:
    """A filled server, and measurements of it."""

    def __init__(self, redis_url: str, api: Api, seconds: float, rate: float) -> None:
        self.raw = connect_sync(Settings(redis_url=redis_url))
        self.store = Store(Settings(redis_url=redis_url))
        self.api, self.seconds, self.rate = api, seconds, rate
        self.slow: dict[str, float] = {}

    def commands(self) -> int:
        """Return how many commands Redis has run."""
        return sum(one["calls"] for one in self.raw.info("commandstats").values())

    async def measure(self, views: list[str], busy: bool) -> Found:
        """Measure these pages."""
        self.raw.slowlog_reset()
        load = [events(self.store, self.rate)] if busy else []
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            pages = [Page(session, self.api.url, VIEWS[view]) for view in views]
            async with beside(*load, *(page.run() for page in pages)):
                await asyncio.sleep(10 if views else 1)
                before, cpu, asked = self.commands(), self.api.cpu(), sum(page.asked for page in pages)
                began = time.monotonic()
                await asyncio.sleep(self.seconds)
                took = time.monotonic() - began
                found = {
                    "commands": (self.commands() - before) / took,
                    "requests": (sum(page.asked for page in pages) - asked) / took,
                    "server": (self.api.cpu() - cpu) / took,
                }
        for one in self.raw.slowlog_get(128):
            words = one["command"].decode(errors="replace").split()
            name = " ".join(words[:1])
            self.slow[name] = max(self.slow.get(name, 0.0), one["duration"] / 1000)
        return found


async def measure(redis_url: str, api: Api, asked: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements."""
    bench = Bench(redis_url, api, asked.seconds, asked.rate)
    bench.raw.config_set("slowlog-log-slower-than", SLOW_US)
    await fill(bench.store, api.url, asked)
    crowd = [MIX[n % len(MIX)] for n in range(asked.pages)]
    alone = [view for view in asked.views.split(",") if view]
    cases = [*((view, [view]) for view in alone), (f"{asked.pages} pages", crowd)]
    rows: dict[str, Any] = {}
    for busy in (False, True):
        none = await bench.measure([], busy)
        for name, views in cases:
            found = await bench.measure(views, busy)
            found["commands"] -= none["commands"]
            rows[f"{name}, {'events' if busy else 'idle'}"] = found
    await bench.store.aclose()
    bench.raw.close()
    return {"rows": rows, "held_ms": bench.slow}


def _table(found: dict[str, Any], pages: int) -> str:
    lines = [f"{'':32}{'commands/s':>12}{'requests/s':>12}{'server %':>10}"]
    for name, row in found["rows"].items():
        missed = name.startswith(str(pages)) and row["commands"] > GOAL_COMMANDS
        lines.append(
            f"{name:32}{row['commands']:12.1f}{row['requests']:12.2f}{100 * row['server']:10.1f}{'  missed' * missed}"
        )
    held = ", ".join(f"{name} {ms:.1f} ms" for name, ms in found["held_ms"].items()) or "at most 1 ms"
    return "\n".join([*lines, f"held Redis: {held}"])


def main() -> None:
    """Measure, and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    for name, default in (
        ("jobs", 100_000),
        ("queues", 500),
        ("workers", 200),
        ("schedules", 1000),
        ("pages", 50),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--views", default=",".join(VIEWS), help="measured alone too, with commas between (all)"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (30)")
    parser.add_argument("--rate", type=float, default=5.0, help="jobs run a second (5)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        binary = shutil.which("redis-server")
        server = EmbeddedServer.start(Path(folder), binary=binary, persistent=False)
        with server, _serving(server.url) as api:
            found = asyncio.run(measure(server.url, api, asked))
    print(json.dumps(found, indent=2) if asked.json else _table(found, asked.pages))


if __name__ == "__main__":
    main()
