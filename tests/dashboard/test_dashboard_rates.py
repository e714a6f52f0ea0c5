"""Rates are there with the first paint wherever the server knows one, else after a second reading."""

import time

import pytest
import redis

from sublet.protocol import keys
from tests.support.dashboard_jobs import Stock
from tests.support.draws import one_in
from tests.support.history_samples import month
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]


@pytest.mark.parametrize("span", one_in(3, ["hour", "day", "month"]))
def test_the_first_paint_has_the_rate_of_the_history(visit, settings, span):
    with serve_process(settings) as server:  # which has no answer from before to share
        stock = Stock(server.url)
        stock.submit("t", "q")
        with redis.Redis.from_url(settings.redis_url) as raw:
            month(raw, keys.base(settings.namespace), raw.time()[0] * 1000)
        sample = stock.ask("GET", "/history?span=hour")["completed_per_minute"]
        expected = next(rate for rate in reversed(sample) if rate is not None)
        page = visit(server.url, "/nonsense", ready=False)
        page.clock.install()
        page.clock.pause_at(time.time() + 60)  # neither a second reading nor the end of patience
        held = []
        page.route("**/history?*", lambda route: held.append(route))
        with page.expect_response("**/stats"):
            page.goto(f"{server.url}/ui?span={span}")
        page.clock.run_for(300)  # a paint
        tile = page.locator(".tile.completed b")
        assert tile.count() == 0
        for route in held:
            with page.expect_response("**/history?*"):
                route.continue_()
        for _ in range(60):
            page.clock.run_for(10)
            if tile.count():
                break
        assert tile.inner_text() == f"{expected:,.0f}"


def test_a_slow_history_does_not_keep_the_numbers_back(visit, site):
    page = visit(site.url, ready=False)
    page.route("**/history?*", lambda route: None)
    page.reload()
    page.locator(".tile.completed b", has_text="–").wait_for(
        timeout=20_000
    )  # the read itself ends after 25 s


def test_a_queue_has_the_rates_of_the_last_minutes(visit, site):
    site.stock.submit("t", "rated")
    page = visit(site.url, ready=False)
    page.goto("about:blank")  # the overview reads them too
    page.clock.install()
    sent = []

    def metrics(route):
        done, ended = (100, 110) if not sent else (400, 510)
        sent.append(done)
        lines = f"""sublet_jobs_finished_total{{outcome="completed",queue="rated"}} {done}.0
sublet_job_run_seconds_count{{queue="rated"}} {ended}.0
"""
        route.fulfill(body=lines)

    page.route("**/metrics", metrics)
    with page.expect_response("**/metrics"):
        page.goto(f"{site.url}/ui/queues")
    row = page.locator("tr[data-key=rated]")
    row.wait_for()
    heads = page.locator("[aria-label=Queues] thead th").all_inner_texts()
    at = heads.index("Completed a minute")
    assert heads[at + 1] == "Failed a minute"

    def rates():
        return [cell.inner_text() for cell in row.locator("th, td").all()[at : at + 2]]

    assert rates() == ["–", "–"]
    with page.expect_response("**/metrics"):  # the server knows totals: a second reading follows soon
        page.clock.run_for(10_000)
    for _ in range(20):
        page.clock.run_for(500)
        if rates() != ["–", "–"]:
            break
    completed, failed = (float(text.replace(",", "")) for text in rates())
    assert (completed, failed) == (300, 100), "what was seen of the minute, and no more"


def test_a_burst_of_seconds_is_not_shown_as_the_rate_of_a_minute(visit, site):
    page = visit(site.url, ready=False)
    page.goto("about:blank")
    page.clock.install()
    begun, read = [], []

    def stats(route):
        found = route.fetch().json()
        begun.append(found["completed_total"])
        found["completed_total"] = begun[0] + (300 if read else 0)
        read.append(found["completed_total"])
        route.fulfill(json=found)

    page.route("**/stats", stats)
    page.route("**/history?*", lambda route: route.fulfill(status=404, json={"type": "none"}))
    page.goto(f"{site.url}/ui")
    tile = page.locator(".tile.completed b")
    shown = set()
    for _ in range(24):
        page.clock.run_for(4_000)
        time.sleep(0.05)
        if tile.count():
            shown.add(tile.inner_text())
    assert len(read) > 4
    numbers = {float(text.replace(",", "")) for text in shown - {"–"}}
    assert numbers, shown
    assert max(numbers) <= 300
