"""Take the documents' pictures of the dashboard, docs/pictures/dashboard-*.webp, in Debian's chromium.
Needs the extra `test`.
"""

import argparse
import base64
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "jobs"), str(ROOT / "functions"), str(ROOT)]

import redis

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.protocol import keys
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import chromium_program, read
from tests.support.dashboard_scene import Scene
from tests.support.http_server import serve_process

PICTURES = ROOT / "docs" / "pictures"
VIEWS = {
    "overview": "",
    "failures": "/failures",
    "job": "/jobs/JOB",
    "queue": "/queues/llm",
    "workflow": "/workflows/FLOW",
}
SCHEMES = ("light", "dark")
WIDTH, HEIGHT, SCALE, QUALITY = 1280, 860, 1.5, 82
SECONDS, ATTEMPTS = 60, 4


@contextmanager
def scene() -> Iterator[tuple[str, Scene]]:
    """Serve a lively namespace; gives the server's URL and the scene."""
    with (
        tempfile.TemporaryDirectory(prefix="sublet-pictures-") as folder,
        EmbeddedServer.start(Path(folder)) as server,
        serve_process(Settings(redis_url=server.url, namespace="shop")) as api,
        redis.Redis.from_url(server.url) as raw,
    ):
        made = Scene(Stock(api.url), raw, keys.base("shop"))
        made.fill()
        yield api.url, made


def take(page: Any, quality: int = QUALITY) -> bytes:
    size = page.viewport_size
    clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": SCALE}
    how = {"format": "webp", "quality": quality, "clip": clip}
    return base64.b64decode(page.context.new_cdp_session(page).send("Page.captureScreenshot", how)["data"])


def open_view(browser: Any, url: str, made: Scene, view: str, scheme: str, width: int = WIDTH) -> Any:
    """Open a view in its own window, and wait until all of it is read."""
    from playwright.sync_api import TimeoutError

    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": width, "height": HEIGHT},
        reduced_motion="reduce",
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    made.beat()
    page.goto(f"{url}/ui{view.replace('JOB', made.job).replace('FLOW', made.flow)}", wait_until="commit")
    read(page)
    live = page.locator(".mark.live")
    for _ in range(ATTEMPTS):  # on a busy machine the event stream may have been refused
        with contextlib.suppress(TimeoutError):
            live.wait_for(timeout=1000 * SECONDS / ATTEMPTS)
            break
        page.reload()
    live.wait_for()
    page.get_by_text("Reading: ").wait_for(state="detached")
    if not view:
        page.wait_for_selector("[aria-label='Times by queue']")
        page.wait_for_selector(".chart")
        made.complete(40)
        page.locator(".tile.completed b", has_not_text="–").wait_for()
    return page


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=PICTURES, help="the folder to write to")
    target = parser.parse_args().to.resolve()
    target.mkdir(parents=True, exist_ok=True)
    with scene() as (url, made), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_program(), args=["--disable-gpu"])
        for name, view in VIEWS.items():
            for scheme in SCHEMES:
                page = open_view(browser, url, made, view, scheme)
                picture = target / f"dashboard-{name}-{scheme}.webp"
                picture.write_bytes(take(page))
                print(f"wrote {picture}")
                page.context.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
