"""docs/guides/dashboard.md, "Try it": from an empty folder to 400 jobs that have run again, as a person would do it."""

import subprocess
import sys

import pytest

from tests.support import pages
from tests.support.dashboard_pages import go, read
from tests.support.dev_process import Dev
from tests.support.paths import ROOT
from tests.support.processes import SECONDS, on_linux

pytest_plugins = ["tests.support.browser"]
pytestmark = [on_linux, pytest.mark.timeout(180)]
PAGE = (ROOT / "docs" / "guides" / "dashboard.md").read_text()
((NAME, TASKS),) = pages.blocks("python", PAGE)
BUG, MENDED = 'CUSTOMERS = {"c-0": "Ada"}', 'CUSTOMERS = {"c-0": "Ada", "c-1": "Bob"}'


@pytest.fixture
def dev(tmp_path):
    dev = Dev(tmp_path, "--port", "0", tasks=TASKS)
    yield dev
    dev.process.kill()
    dev.wait()


def test_400_failed_jobs_are_understood_and_run_again(visit, dev, tmp_path):
    assert (NAME, MENDED in PAGE) == ("tasks.py", True)
    up = dev.up()
    env = dev.outside() | {"SUBLET_REDIS_URL": up["redis_url"]}
    subprocess.run([sys.executable, "tasks.py"], cwd=tmp_path, env=env, check=True, timeout=SECONDS)
    page = visit(up["url"])
    go(page, "f", "failures")
    page.get_by_role("button", name="Retry 400").wait_for()
    assert page.locator("[aria-label=Failures] tbody tr").count() == 1
    page.get_by_role("link", name="KeyError 'c-1'").click()
    page.wait_for_url("**/ui/jobs/*")
    read(page)
    assert "CUSTOMERS[customer]" in page.locator(".attempts pre").first.inner_text()

    (tmp_path / "tasks.py").write_text(TASKS.replace(BUG, MENDED))
    dev.until("app", "reloaded")
    page.go_back()
    page.get_by_role("button", name="Retry 400").click()
    box = page.get_by_role("dialog")
    box.get_by_role("button", name="Retry 400").click()
    box.get_by_text(
        "Done: 400 jobs queued again."
    ).wait_for()  # the order may ask once more after the last job
    page.keyboard.press("Enter")
    box.wait_for(state="detached")
    page.get_by_text("No dead jobs.").wait_for()
    go(page, "j", "jobs")
    page.get_by_role("navigation", name="States").get_by_role("link", name="completed 800").wait_for()
