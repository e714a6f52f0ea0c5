"""Measure the dashboard under load, in a quarter of an hour.

- paint: each view in Chromium; `shown`: until the view has read. `idle`: CPU of the open page;
- commands: Redis's commands a second for simulated pages (`open_pages.py`), and the server's CPU;
- held: the longest command of each request.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

import aiohttp
from dashboard_holds import longest
from dashboard_load import events, fill, ring
from dashboard_paint import VIEWS as PAINTED
from dashboard_paint import Browser, chromium
from open_pages import MIX, VIEWS, Page
from over_http import Api, _serving

from sublet import Settings
from sublet.connection.settings import connect_sync
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.store.store import Store

GOAL_COMMANDS, GOAL_HELD, GOAL_PAINT, GOAL_IDLE = 100.0, 5.0, 1000.0, 0.05
ROUNDS = 3
WARM_SECONDS = 20.0
Found = dict[str, float]


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

    def __init__(self, redis_url: str, url: str, asked: argparse.Namespace) -> None:
        self.raw = connect_sync(Settings(redis_url=redis_url))
        self.store = Store(Settings(redis_url=redis_url))
        self.url, self.asked = url, asked

    def commands(self) -> int:
        return sum(one["calls"] for one in self.raw.info("commandstats").values())

    async def measure(self, api: Api, views: list[str], busy: bool) -> Found:
        load = [events(self.store, self.asked.rate)] if busy else []
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            pages = [Page(session, api.url, VIEWS[view]) for view in views]
            async with beside(*load, *(page.run() for page in pages)):
                await asyncio.sleep(WARM_SECONDS if views else 1)
                before, cpu, asked = self.commands(), api.cpu(), sum(page.asked for page in pages)
                began = time.monotonic()
                await asyncio.sleep(self.asked.seconds)
                took = time.monotonic() - began
                return {
                    "commands": (self.commands() - before) / took,
                    "requests": (sum(page.asked for page in pages) - asked) / took,
                    "server": (api.cpu() - cpu) / took,
                }

    async def pages(self, api: Api) -> dict[str, Found]:
        crowd = [MIX[n % len(MIX)] for n in range(self.asked.pages)]
        alone = [view for view in self.asked.views.split(",") if view]
        rows: dict[str, Found] = {}
        for busy in (False, True):
            none = await self.measure(api, [], busy)
            for name, views in (*((view, [view]) for view in alone), (f"{self.asked.pages} pages", crowd)):
                found = await self.measure(api, views, busy)
                found["commands"] -= none["commands"]
                rows[f"{name}, {'events' if busy else 'idle'}"] = found
        return rows

    async def aclose(self) -> None:
        await self.store.aclose()
        self.raw.close()


def paint(redis_url: str, seconds: float) -> dict[str, Found]:
    from playwright.sync_api import sync_playwright

    rows: dict[str, Found] = {}
    with sync_playwright() as playwright:
        browser = Browser(playwright)
        for _ in range(ROUNDS):
            with _serving(redis_url) as api:
                for view in PAINTED:
                    first, shown = browser.paint(api.url, view)
                    row = rows.setdefault(f"/ui/{view}".rstrip("/"), {"paint_ms": first, "shown_ms": shown})
                    row |= {"paint_ms": min(first, row["paint_ms"]), "shown_ms": min(shown, row["shown_ms"])}
        with _serving(redis_url) as api:
            for view, row in zip(PAINTED, rows.values(), strict=True):
                row["idle"] = browser.cpu(api.url, view, seconds)
        browser.close()
    return rows


async def measure(redis_url: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Fill the server, and run all measurements but those of Chromium."""
    with _serving(redis_url) as api:
        bench = Bench(redis_url, api.url, asked)
        await fill(bench.store, api.url, asked)
        ring(bench.raw, bench.store.operations.bases[0])
        rows = await bench.pages(api) if asked.pages else {}
        held = await longest(bench.raw, api.url) if asked.held else {}
        await bench.aclose()
    return {"rows": rows, "held": held}


def _table(found: dict[str, Any], pages: int) -> str:
    lines: list[str] = []
    if found["paint"]:
        lines.append(f"{'':44}{'paint ms':>10}{'shown ms':>10}{'idle %':>8}")
    for name, row in found["paint"].items():
        missed = row["paint_ms"] > GOAL_PAINT or row["idle"] > GOAL_IDLE
        lines.append(
            f"{name:44}{row['paint_ms']:10.0f}{row['shown_ms']:10.0f}{100 * row['idle']:8.1f}{'  missed' * missed}"
        )
    if found["rows"]:
        lines.append(f"{'':44}{'commands/s':>10}{'requests/s':>12}{'server %':>10}")
    for name, row in found["rows"].items():
        missed = name.startswith(f"{pages} ") and row["commands"] > GOAL_COMMANDS
        lines.append(
            f"{name:44}{row['commands']:10.1f}{row['requests']:12.2f}{100 * row['server']:10.1f}{'  missed' * missed}"
        )
    if found["held"]:
        lines.append(f"{'':44}{'held ms':>10}  by")
    for name, (ms, command) in found["held"].items():
        lines.append(f"{name:44}{ms:10.1f}  {command}{'  missed' * (ms > GOAL_HELD)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    sizes = {"jobs": 100_000, "queues": 500, "workers": 200, "schedules": 1000, "pages": 50}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"({default:,})")
    parser.add_argument(
        "--views", default="", help=f"pages measured alone, too, two minutes each: {','.join(VIEWS)}"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement of pages (120)")
    parser.add_argument("--rate", type=float, default=5.0, help="jobs run a second (5)")
    parser.add_argument("--no-held", dest="held", action="store_false", help="leave out the longest commands")
    parser.add_argument("--no-paint", dest="paint", action="store_false", help="leave out Chromium")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        binary = shutil.which("redis-server")
        with EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server:
            found = asyncio.run(measure(server.url, asked))
            found["paint"] = paint(server.url, asked.seconds / 6) if asked.paint and chromium() else {}
    print(json.dumps(found, indent=2) if asked.json else _table(found, asked.pages))


if __name__ == "__main__":
    main()
