"""Each view has the parts that its subject needs, and its orders work, in a real browser."""

import re

import pytest
import redis

from sublet.protocol import keys
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import columns, read
from tests.support.history_samples import month
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]


@pytest.fixture(scope="module")
def course(site):
    """A month of samples."""
    raw = redis.Redis.from_url(site.settings.redis_url)
    month(raw, keys.base(site.settings.namespace), raw.time()[0] * 1000)
    raw.close()


def test_the_overview_counts_jobs_and_shows_how_healthy_the_namespace_is(visit, site):
    page = visit(site.url)
    page.wait_for_selector(".tile")
    stats = site.stock.ask("GET", "/stats")
    tiles = {
        tile.locator(".label").inner_text(): tile.locator("b").inner_text()
        for tile in page.locator(".tile").all()
    }
    assert {name: tiles[name] for name in ("ready", "running", "scheduled", "dead")} == {
        name: str(stats[name]) for name in ("ready", "running", "scheduled", "dead")
    }
    text = page.locator(".health").inner_text()
    for expected in ("Oldest ready job", "Maintenance", "Workers", "Without a worker"):
        assert expected in text, expected
    page.get_by_role("region", name="Times by queue").wait_for()
    assert "images" in columns(page, "[aria-label='Times by queue']", 0)
    page.locator(".chart").first.wait_for()
    page.locator(".chart summary").first.click()
    assert page.locator(".chart table tbody tr").first.is_visible()
    page.get_by_role("link", name="dead").first.click()
    page.wait_for_url("**/ui/failures")


def test_the_overview_has_a_line_about_redis_and_the_findings_of_the_doctor_below(visit, site):
    page = visit(site.url)
    line = page.locator(".health > li", has=page.locator("b", has_text="Redis"))
    line.wait_for()
    report = site.stock.ask("GET", "/server")
    (server,) = report["servers"]
    word = {"ok": "good", "warn": "warning", "bad": "bad"}[report["level"]]
    text = line.locator("summary").inner_text()
    assert text.startswith(word)
    for part in (server["version"], server["eviction_policy"], "no limit"):
        assert part in text, part
    assert line.locator(":scope > .badge .icon").count() == 1
    assert not line.get_by_text("when memory is short").is_visible()
    line.locator("summary").click()
    line.get_by_text("when memory is short").wait_for()
    shown = line.locator("details li").all_inner_texts()
    assert len(shown) == len(server["checks"])
    assert all(check["subject"] in one for one, check in zip(shown, server["checks"], strict=True))


def test_a_token_without_the_state_of_redis_gets_no_line_about_it(visit, site):
    page = visit(site.url, ready=False)
    page.route("**/server", lambda route: route.fulfill(status=403, json={"detail": "all queues"}))
    page.reload()
    page.locator(".health").get_by_text("Maintenance").wait_for()
    page.get_by_role("heading", name="Backlog").wait_for()
    assert page.locator(".health b", has_text="Redis").count() == 0


@pytest.mark.parametrize(("span", "label", "rows"), [("hour", "Hour", 12), ("month", "30 days", 12)])
def test_the_overview_has_charts_of_the_history(visit, site, course, span, label, rows):
    page = visit(site.url)
    charts = page.get_by_role("navigation", name="Span of the charts")
    assert charts.get_by_role("link").all_inner_texts() == ["Hour", "Day", "30 days"]
    charts.get_by_role("link", name=label).click()
    page.wait_for_url("**/ui" if span == "hour" else f"**/ui?span={span}")
    read(page)
    charts.locator("[aria-current]", has_text=label).wait_for()
    page.get_by_role("heading", name="Backlog").wait_for()
    assert page.locator(".chart h3").all_inner_texts() == [
        "Throughput a minute",
        "Failures a minute",
        "Backlog",
    ]
    page.locator(".chart summary").first.click()
    numbers = columns(page, ".chart:first-child", 2)
    assert len(numbers) == rows
    assert any(float(one.replace(",", "")) > 0 for one in numbers if one != "–")
    page.reload()
    charts.locator("[aria-current]", has_text=label).wait_for()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_label_of_a_chart_is_on_its_lines_or_another_label(visit, site, course, width):
    page = visit(site.url, "?span=day", width=width)
    page.wait_for_selector(".chart")
    for one in page.locator(".chart").all():
        top, lines = one.locator(".top").bounding_box(), one.locator(".plot svg").bounding_box()
        assert top["y"] + top["height"] <= lines["y"] + 1
        begin, end = (label.bounding_box() for label in one.locator(".axis span").all())
        assert begin["x"] + begin["width"] <= end["x"] or begin["y"] + begin["height"] <= end["y"]


def test_the_charts_end_with_the_numbers_of_the_tiles(visit, site, course):
    page = visit(site.url)
    page.wait_for_selector(".chart")
    for _ in range(3):
        site.stock.submit("t", "present")
        queued = site.stock.ask("GET", "/stats")["queued"]
        legend = page.locator(".chart li.queued", has_text="queued").locator("b")
        legend.get_by_text(f"{queued:,}", exact=True).wait_for()
    tile = page.locator(".tile.completed b").inner_text()
    assert page.locator(".chart li.completed b").inner_text() == tile


def test_a_server_without_workers_is_not_alarmed_until_a_job_waits(visit, settings):
    with serve_process(settings) as server:
        stock = Stock(server.url)
        stock.submit("t", "later", delay=3600)
        page = visit(server.url)
        line = page.locator(".health li", has_text="Workers")
        line.get_by_text("none heard from in the last minute").wait_for()
        assert line.locator(".badge").count() == 0
        stock.submit("t", "now")
        line.locator(".badge.warning").wait_for()


def test_a_time_without_samples_is_a_gap_in_the_charts(visit, site, course):
    page = visit(site.url, "?span=day")
    page.get_by_text("Grey: no samples").wait_for()
    paths = [path.get_attribute("d") for path in page.locator(".chart path.line").all()]
    assert len(paths) == 7
    assert all(re.sub("M[^M]*h0$", "", path).count("M") == 2 for path in paths), "one gap, and now"
    assert page.locator(".chart path.gap").count() == 3


def test_a_token_without_the_history_gets_the_charts_of_the_open_page(visit, site):
    page = visit(site.url, ready=False)
    page.route("**/history?*", lambda route: route.fulfill(status=403, json={"detail": "all queues"}))
    page.reload()
    page.get_by_role("heading", name="Since this page was opened").wait_for()
    assert page.get_by_role("navigation", name="Span of the charts").count() == 0


def test_failures_are_grouped_and_a_group_is_retried(visit, site):
    for n in range(7):
        site.stock.dead("import", "grouped", "KeyError", f"order {n} has no customer 'c-{n}'")
    site.stock.dead("import", "grouped", "KeyError", "no such table")
    page = visit(site.url, "/failures?queue=grouped")
    assert columns(page, "[aria-label=Failures]", 0) == ["7", "1"]
    assert "8 dead jobs in 2 groups." in page.locator("main").inner_text()
    page.get_by_role("button", name="Retry 7").click()
    box = page.get_by_role("dialog", name="Retry these jobs?")
    box.get_by_text("order 6 has no customer 'c-6'").wait_for()  # which of the two causes
    box.get_by_text("Numbers, identifiers and quoted text in it may differ.").wait_for()
    box.get_by_role("button", name="Retry 7").click()
    box = page.get_by_role("dialog", name="Retry: done")
    box.get_by_text("Done: 7 jobs queued again.").wait_for()
    box.get_by_role("button", name="Close").click()
    page.locator("[aria-label=Failures] tbody tr:nth-child(2)").wait_for(state="detached")
    jobs = site.stock.ask("GET", "/jobs?queue=grouped")["jobs"]
    assert sorted(job["state"] for job in jobs) == ["dead", *["queued"] * 7]


def test_a_group_is_erased_and_its_waiting_jobs_are_cancelled(visit, site):
    stock = site.stock
    for n in range(3):
        stock.dead("t", "erased", "Boom", f"words {n}")
    stock.dead("t", "erased", "Boom", "other words")
    lease = stock.held("t", "erased", max_attempts=5)
    waits = stock.settle(lease, "fail", code="Boom", message="words 7")
    page = visit(site.url, "/failures?queue=erased")
    row = page.locator("[aria-label=Failures] tbody tr").first
    row.get_by_role("button", name="Cancel 1 waiting").click()
    box = page.get_by_role("dialog")
    box.get_by_role("button", name="Cancel 1").click()
    box.get_by_text("Done: 1 job cancelled.").wait_for()
    box.get_by_role("button", name="Close").click()
    row.get_by_role("button", name="Erase 3").click()
    box.get_by_role("button", name="Erase 3").click()
    box.get_by_text("Done: 3 jobs erased.").wait_for()
    left = {job["id"]: job for job in stock.ask("GET", "/jobs?queue=erased")["jobs"]}
    assert left.pop(waits)["state"] == "cancelled"
    assert [job["last_error"]["message"] for job in left.values()] == ["other words"]


def test_a_job_that_has_left_the_group_since_the_count_is_left_out(visit, site):
    jobs = [site.stock.dead("t", "changed", "Boom", "words") for _ in range(3)]
    page = visit(site.url, "/failures?queue=changed")
    page.get_by_role("button", name="Retry 3").click()
    box = page.get_by_role("dialog")
    box.get_by_text("3 jobs found.").wait_for()
    site.stock.ask("POST", f"/jobs/{jobs[0]}/retry")
    box.get_by_role("button", name="Retry 3").click()
    box.get_by_text("Done: 2 of 3 jobs queued again, 1 was changed by others.").wait_for()
    assert not box.get_by_role("button", name="Retry").count(), "an order is given once"


def test_pages_of_jobs_are_retried_and_the_rest_is_left_after_a_stop(visit, site):
    for _ in range(450):
        site.stock.submit("t", "stopped")
    claim = {"queues": ["stopped"], "worker": "w", "n": 100}
    while leases := (site.stock.ask("POST", "/jobs/claim", claim) or {}).get("jobs"):
        ended = [{"id": one["id"], "token": one["token"], "code": "Boom", "again": False} for one in leases]
        site.stock.ask("POST", "/jobs/fail", {"jobs": ended})
    page = visit(site.url, "/failures?queue=stopped")
    page.get_by_role("button", name="Retry 450").click()
    box = page.get_by_role("dialog")
    box.get_by_text("450 jobs found.").wait_for()
    orders = []

    def hold(route):  # the dialog is closed while the server has the first page
        is_order = not route.request.post_data_json.get("dry_run")
        if is_order:
            orders.append(route)
        if is_order and len(orders) == 1:
            box.get_by_role("button", name="Stop").click()
        route.continue_()

    page.route("**/jobs/retry", hold)
    box.get_by_role("button", name="Retry 450").click()
    page.get_by_role("button", name="Retry 250").wait_for()
    assert len(orders) == 1


def test_the_audit_lists_orders_by_people(visit, site):
    job = site.stock.submit("t", "audited")
    site.stock.ask("POST", f"/jobs/{job}/cancel")
    page = visit(site.url)
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Audit").click()
    page.wait_for_url("**/ui/audit")
    row = page.locator("[aria-label=Audit] tbody tr").first
    row.wait_for()
    assert row.locator("th, td").all_inner_texts()[1:] == [
        "anyone",
        "Cancel",
        f"job {job}",
        "audited",
        "cancelled",
    ]
    row.get_by_role("link", name=job).click()
    page.wait_for_url(f"**/ui/jobs/{job}")


def test_a_queue_is_paused_resumed_and_limited(visit, site):
    site.stock.submit("t", "limited")
    page = visit(site.url, "/queues")
    row = page.locator("tr[data-key=limited]")
    row.get_by_role("button", name="Pause limited").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    row.locator(".badge.paused").wait_for()
    assert site.stock.ask("GET", "/queues/limited")["paused_at"]
    row.get_by_role("button", name="Resume limited").click()
    row.locator(".badge.active").wait_for()
    row.get_by_role("button", name="Configure limited").click()
    page.get_by_label("Unfinished jobs").fill("12")
    page.get_by_label("Task for each dead job").fill("report_death")
    page.get_by_role("button", name="Configure", exact=True).click()
    row.get_by_text("jobs 12").wait_for()
    row.get_by_text("dead → report_death").wait_for()
    found = site.stock.ask("GET", "/queues/limited")
    assert (found["limits"], found["on_dead"]) == ({"jobs": 12}, "report_death")
    row.get_by_role("button", name="Configure limited").click()
    page.get_by_label("Unfinished jobs").fill("")
    page.get_by_label("Task for each dead job").fill("")
    page.get_by_role("button", name="Configure", exact=True).click()
    row.get_by_text("none").wait_for()
    assert site.stock.ask("GET", "/queues/limited")["on_dead"] is None


def test_a_schedule_is_read_paused_resumed_and_run(visit, site):
    page = visit(site.url, "/schedules")
    row = page.locator("tr[data-key=nightly-report]")
    assert "At 02:30 every day (Europe/Berlin)" in row.inner_text()
    row.get_by_role("button", name="Pause nightly-report").click()
    row.locator(".badge.paused").wait_for()
    away = page.locator("[aria-label='Schedules'] tr[data-key=nightly-report] td.when").first
    assert away.inner_text() == "paused"
    row.get_by_role("link", name="nightly-report").click()
    page.get_by_role("heading", level=1, name="nightly-report").wait_for()
    assert columns(page, "[aria-label='Next occurrences']", 2) == ["paused"] * 5
    page.go_back()
    row.get_by_role("button", name="Resume nightly-report").click()
    row.locator(".badge.active").wait_for()
    assert away.inner_text().startswith("in ")
    row.get_by_role("link", name="nightly-report").click()
    page.get_by_role("heading", level=1, name="nightly-report").wait_for()
    read(page)
    assert [when[11:16] for when in columns(page, "[aria-label='Next occurrences']", 0)] == ["02:30"] * 5
    assert "No occurrence has had a job yet." in page.locator("main").inner_text()
    page.get_by_role("button", name="Run now: nightly-report").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    page.wait_for_url("**/ui/jobs/*")
    page.get_by_role("heading", level=1, name="nightly_report").wait_for()


def test_a_schedule_shows_its_last_runs_with_their_jobs(visit, site):
    raw = redis.Redis.from_url(site.settings.redis_url)
    base, now = keys.base(site.settings.namespace), raw.time()[0] * 1000
    site.stock.ask("PUT", "/schedules/hourly", {"task": "t", "queue": "hourly", "every": 3600})
    jobs = [f"0-hourly:{now - ago}" for ago in (3000, 2000, 1000)]
    for job in jobs:
        occurrence = job.rpartition(":")[2]
        raw.hset(keys.schedule(base, "hourly"), "occurrence", occurrence)
        raw.zadd(keys.schedules(base), {"hourly": occurrence})
        site.stock.ask("POST", "/tick")
    raw.close()
    site.stock.ask("POST", f"/jobs/{jobs[1]}/cancel")
    site.stock.ask("POST", f"/jobs/{jobs[0]}/cancel")
    site.stock.ask("POST", f"/jobs/{jobs[0]}/erase")
    page = visit(site.url, "/schedules/hourly")
    assert columns(page, "[aria-label='Last runs']", 0) == jobs[::-1]
    assert columns(page, "[aria-label='Last runs']", 1) == ["queued", "cancelled", "no longer kept"]
    page.get_by_role("link", name=jobs[1]).click()
    page.wait_for_url(f"**/ui/jobs/{jobs[1].replace(':', '%3A')}")


def test_a_worker_shows_its_memory_and_when_its_last_job_ended(visit, site):
    about = {"host": "mill", "memory": 200 << 20, "last_job": 90}
    site.stock.ask("PUT", "/workers/large", {"life": "1", "about": about})
    site.stock.ask("PUT", "/workers/odd", {"life": "1", "about": {"memory": "<b>"}})
    page = visit(site.url, "/workers")
    text = page.locator("tr[data-key=large]").inner_text()
    assert "200 MiB" in text
    assert "the last ended 1 min ago" in text
    assert "<b>" not in page.locator("tr[data-key=odd]").inner_text()


def test_a_worker_is_drained_and_a_pool_explains_its_sum(visit, site):
    site.stock.ask("PUT", "/workers/leaves", {"life": "1", "about": {"host": "mill", "slots": 2}})
    page = visit(site.url, "/workers")
    assert "10 a worker, from 0 to 5" in page.locator("[aria-label=Pools]").inner_text()
    row = page.locator("tr[data-key=leaves]")
    row.get_by_role("button", name="Drain leaves").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    row.locator(".badge.draining").wait_for()
    (worker,) = [w for w in site.stock.ask("GET", "/workers")["workers"] if w["name"] == "leaves"]
    assert worker["draining"]


@pytest.mark.parametrize(
    ("text", "place"),
    [("mail", "/jobs?queue=mail"), ("send_mail", "/jobs?task=send_mail"), ("ID", "/jobs/ID")],
)
def test_the_search_finds_jobs_queues_and_tasks(visit, site, text, place):
    job = site.stock.ids["dead"]
    page = visit(site.url)
    page.keyboard.press("/")
    page.keyboard.type(text.replace("ID", job))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui{place.replace('ID', job)}")
    read(page)


def test_a_queue_that_never_existed_is_called_so(visit, site):
    page = visit(site.url, "/queues/mial")
    page.get_by_text("There is no queue of this name.").wait_for()
    assert page.locator("main .facts").count() == 0
    page.get_by_role("link", name="All queues").click()
    page.wait_for_url("**/ui/queues")


def test_the_overview_counts_attempts_that_have_ended(visit, settings):
    with serve_process(settings) as server:
        Stock(server.url).held("t", "runs-only")
        page = visit(server.url)
        region = page.locator("[aria-label='Times by queue']")
        region.locator("tr[data-key=runs-only]").wait_for()
        assert region.locator("thead th").all_inner_texts()[1] == "Ended attempts"
        assert region.locator("tr[data-key=runs-only] td").first.inner_text() == "0"
