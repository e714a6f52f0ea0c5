"""What the page says when Redis stops, and when a worker does."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.protocol import keys
from tests.support.dashboard_jobs import Stock
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser"]
GONE = "Redis does not answer"


@pytest.fixture
def own():
    """A server's URL, and the process id of its Redis."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder)) as server,
        serve_process(Settings(redis_url=server.url, namespace="own")) as api,
        redis.Redis.from_url(server.url) as raw,
    ):
        pid = raw.info("server")["process_id"]
        yield api.url, pid
        os.kill(pid, signal.SIGCONT)


def test_each_open_page_says_once_that_redis_has_stopped_and_goes_on_after_it(visit, own):
    """Only the stream can tell: the list reads nothing by itself for two minutes."""
    url, pid = own
    Stock(url).submit("before", "q", delay=3600)
    pages = [visit(url, path) for path in ("/jobs?state=scheduled", "/workers")]
    for page in pages:
        page.wait_for_selector(".mark.live")
    asked = []
    pages[0].on("request", lambda request: asked.append(request.url))
    os.kill(pid, signal.SIGSTOP)
    pages[0].wait_for_selector("main.stale")
    assert not any("/events" in url for url in asked), "the open stream told it"
    for page in pages:
        page.wait_for_selector("main.stale")
        assert page.locator(".mark").inner_text().startswith("Stale")
        (alert,) = page.get_by_role("alert").all_inner_texts()
        assert alert.count(GONE) == 1
    assert "before" in pages[0].locator("#jobs").inner_text(), "it shows what it last read"
    os.kill(pid, signal.SIGCONT)
    for page in pages:
        page.wait_for_selector(".mark.live")
        page.get_by_role("alert").wait_for(state="detached")
    Stock(url).submit("after", "q", delay=3600)
    pages[0].get_by_role("link", name="after").wait_for()


def worker(site, name, silence, runs):
    """Register a worker that was heard `silence` seconds ago, after it had run for `runs` seconds."""
    site.stock.ask("PUT", f"/workers/{name}", {"life": "1", "about": {"host": "mill", "slots": 2}})
    base = keys.base(site.settings.namespace)
    with redis.Redis.from_url(site.settings.redis_url) as raw:
        seconds, _ = raw.time()
        seen = 1000 * (seconds - silence)
        raw.zadd(keys.workers(base), {name: seen})
        raw.hset(keys.worker(base, name), "enlisted_at", seen - 1000 * runs)


@pytest.mark.parametrize(("silence", "state"), [(20, "late"), (45, "silent")])
def test_a_worker_of_which_nothing_is_heard_no_longer_runs(visit, site, silence, state):
    gone, here = f"gone-{silence}", f"here-{silence}"
    worker(site, gone, silence, 60)
    worker(site, here, 0, 60 + silence)
    page = visit(site.url, "/workers")
    row = page.locator(f"tr[data-key={gone}]")
    assert row.locator(".badge").inner_text() == state
    assert "nothing heard since" in row.inner_text()
    assert row.locator("td[data-label='Runs for']").inner_text() == "1 min"
    row = page.locator(f"tr[data-key={here}]")
    assert "nothing heard" not in row.inner_text()
    assert row.locator(".badge").inner_text() == "alive"
    assert row.locator("td[data-label='Runs for']").inner_text().startswith("1 min ")


def test_all_queues_of_a_worker_can_be_seen(visit, site):
    about = {"host": "mill", "queues": [f"q{n}" for n in range(6)], "queue_count": 40}
    site.stock.ask("PUT", "/workers/broad", {"life": "1", "about": about})
    page = visit(site.url, "/workers")
    row = page.locator("tr[data-key=broad]")
    assert not row.get_by_text("q5").is_visible()
    row.get_by_text("and 3 more").click()
    assert row.locator(".tag").all_inner_texts() == about["queues"]
    row.get_by_text("q5").wait_for()
    row.get_by_text("and 34 that it does not name").wait_for()


def test_a_list_of_several_states_says_what_each_time_is(visit, site):
    page = visit(site.url, "/jobs")
    page.wait_for_selector("#jobs tbody tr")
    said = {}
    for state in ("scheduled", "queued", "running", "completed", "dead"):
        row = page.locator("#jobs tbody tr", has=page.locator(f".badge.{state}")).first
        said[state] = row.locator("td.when small.block").inner_text()
    assert said == {
        "scheduled": "due",
        "queued": "queued",
        "running": "lease left",
        "completed": "ended",
        "dead": "ended",
    }
    page = visit(site.url, "/jobs?state=running")
    page.get_by_role("columnheader", name="Lease left").wait_for()
    assert page.locator("td.when small.block").count() == 0


def test_the_overview_counts_workers_by_when_they_were_heard(visit, site):
    worker(site, "gone", 45, 60)
    page = visit(site.url)
    page.locator(".health li", has_text="Workers").get_by_text("heard from in the last minute").wait_for()
    page.locator(".tile.running", has_text="heard from in a minute").wait_for()
