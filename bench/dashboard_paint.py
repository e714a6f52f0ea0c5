"""How soon Chromium paints each view of the dashboard, and the CPU time of a page that is left open."""

import importlib.util
import shutil
import time
from typing import Any

VIEWS = ("", "jobs", "failures", "queues", "schedules", "workers")
PATIENCE_MS = 60_000
SETTLE_SECONDS = 3.0
SHOWN = """new MutationObserver(() => {
  if (!window.shownAt && document.querySelector("main:not([aria-busy]) h1"))
    requestAnimationFrame(() => { window.shownAt ??= performance.now(); });
}).observe(document, {subtree: true, childList: true, attributes: true});"""
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def chromium() -> str:
    """Return the path of Chromium; empty where it or Playwright is missing."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
    return found if importlib.util.find_spec("playwright") else ""


class Browser:
    """A Chromium without a window."""

    def __init__(self, playwright: Any) -> None:
        self._browser = playwright.chromium.launch(executable_path=chromium(), args=["--disable-gpu"])
        self._session = self._browser.new_browser_cdp_session()

    def close(self) -> None:
        self._browser.close()

    def _open(self, url: str, view: str) -> Any:
        context = self._browser.new_context(viewport={"width": 1280, "height": 900})
        context.add_init_script(SHOWN)
        page = context.new_page()
        page.goto(f"{url}/ui/{view}".rstrip("/"), wait_until="commit")
        page.wait_for_function("() => window.shownAt", timeout=PATIENCE_MS)
        return page

    def paint(self, url: str, view: str) -> tuple[float, float]:
        """Open a view. Return the ms to its first paint, and until it shows what it has read."""
        page = self._open(url, view)
        found = page.evaluate(PAINTED), page.evaluate("() => window.shownAt")
        page.context.close()
        return found

    def cpu(self, url: str, view: str, seconds: float) -> float:
        """Return the share of one core that an open page uses."""
        page = self._open(url, view)
        time.sleep(SETTLE_SECONDS)
        before, began = self._renderers(), time.monotonic()
        time.sleep(seconds)
        used = sum(cpu - before.get(one, 0.0) for one, cpu in self._renderers().items())
        page.context.close()
        return used / (time.monotonic() - began)

    def _renderers(self) -> dict[int, float]:
        found = self._session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {one["id"]: one["cpuTime"] for one in found if one["type"] == "renderer"}
