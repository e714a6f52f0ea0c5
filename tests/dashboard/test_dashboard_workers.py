"""The page beside real workers: one is killed while its job's page is open, and a thousand dead jobs are run again."""

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import columns, until_true
from tests.support.http_server import serve_process
from tests.support.processes import on_linux, until

pytest_plugins = ["tests.support.browser", "tests.support.worker_processes"]
pytestmark = [on_linux, pytest.mark.timeout(180)]
LEASE = 3
LIFE = "[aria-label='Life of the job']"
RECORD = """
window.leases = [];
new MutationObserver(() => {
  const text = document.querySelector("main .facts .lease")?.textContent ?? "";
  if (text && text !== window.leases.at(-1)) window.leases.push(text);
}).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true });
"""
"""Records what the lease's countdown shows, as long as the page is not loaded again."""


@pytest.fixture
def server(stage):
    with serve_process(stage.settings) as server:
        yield server


def rows(page):
    """Span, worker and outcome of each row of the waterfall."""
    return list(zip(*(columns(page, LIFE, n) for n in (0, 4, 5)), strict=True))


@pytest.mark.parametrize("is_there", [False, True], ids=["comes later", "is there"])
def test_the_page_of_a_job_follows_a_crash_and_the_takeover(visit, stage, server, is_there):
    """The second worker comes when the lease has ended, or waits for its end."""
    first = stage.hire("--slots", "1", "--lease", f"{LEASE}s")
    (job,) = stage.submit(tasks.rests, stage.go, always=True)
    stage.until_noted("began", job)
    one = stage.job(job).worker
    page = visit(server.url, f"/jobs/{job}")
    page.wait_for_selector(".mark.live")
    page.evaluate(RECORD)
    until_true(page, "window.leases.length")
    if is_there:
        stage.hire("--slots", "1", "--lease", "30s")
    first.kill()
    if not is_there:
        page.locator(".title .badge.warning", has_text="lease ended").wait_for()
        page.locator(".lease", has_text="over").wait_for()
        assert rows(page)[-1] == ("attempt 1", one, "lease ended")
        *before, _ = page.evaluate("window.leases")
        assert before[-1] in ("1 s", "0 s"), before
        stage.hire("--slots", "1", "--lease", "30s")

    page.locator(f"{LIFE} tr", has_text="attempt 2").wait_for()
    two = stage.job(job).worker
    assert two != one
    ended, runs = (row for row in rows(page) if row[0].startswith("attempt"))
    assert ended[:2] == ("attempt 1", one)
    assert ended[2] == "crashed" or (is_there and ended[2] == "lease_expired")  # who looks first: both may
    assert runs == ("attempt 2", two, "running")
    assert page.get_by_text("lease ended").count() == 0
    stage.say_go()
    page.wait_for_selector(".title .badge.completed")
    assert rows(page)[-1] == ("attempt 2", two, "completed")
    assert page.locator(".attempts summary b").all_inner_texts() == ["Attempt 2", "Attempt 1"]
    assert page.evaluate("window.leases.length"), "the page was not loaded again"


def test_a_thousand_dead_jobs_run_again_while_workers_run(visit, stage, server):
    stock, jobs = Stock(server.url), 1000
    made = stage.submit(tasks.quick, n=jobs)
    claim = {"queues": ["default"], "worker": "w", "n": 100}
    while leases := (stock.ask("POST", "/jobs/claim", claim) or {}).get("jobs"):
        ended = [{"id": one["id"], "token": one["token"], "code": "Boom", "again": False} for one in leases]
        stock.ask("POST", "/jobs/fail", {"jobs": ended})
    workers = [stage.hire("--slots", "10") for _ in range(2)]
    others = stage.submit(tasks.quick, n=50)
    page = visit(server.url, "/failures")
    page.wait_for_selector(".mark.live")
    page.get_by_role("button", name="Retry 1,000").click()
    box = page.get_by_role("dialog")
    box.get_by_text("1,000 jobs found.").wait_for()
    others += stage.submit(tasks.quick, n=50)
    box.get_by_role("button", name="Retry 1,000").click()
    page.get_by_role("dialog", name="Retry: done").wait_for()
    assert box.get_by_role("status").inner_text() == "Done: 1,000 jobs queued again."
    bar = box.get_by_role("progressbar")
    assert bar.get_attribute("value") == bar.get_attribute("max") == "1000"
    box.get_by_role("button", name="Close").click()
    page.get_by_text("No dead jobs.").wait_for()
    for worker in workers:
        assert worker.process.poll() is None
    until(lambda: stock.ask("GET", "/stats")["completed"] == jobs + len(others))
    assert len(stage.notes("done")) == jobs + len(others), "each has run once"
    assert {stage.job(job).state.value for job in (*made[:3], *made[-3:], *others[:3])} == {"completed"}
