"""The page of a job that waits, or has kept steps."""

import pytest

from sublet import App, SyncClient
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import columns
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]
app = App()


@app.task(queue="parts")
def part(number: int) -> int:
    return number


def suspended(site, kind, name, delay):
    lease = site.stock.held("order", f"suspends-{kind}-{name}")
    steps = {"charge": {"receipt": 4711}, "ship": "x" * 3000}
    site.stock.ask("POST", f"/jobs/{lease['id']}/step", {"token": lease["token"], "steps": steps})
    return site.stock.settle(lease, "suspend", kind=kind, name=name, delay=delay)


def offered(page):
    page.get_by_role("button", name="Reschedule").wait_for()  # by now the roles are read
    return page.get_by_role("button", name="Run now").all()


@pytest.mark.parametrize(("delay", "until"), [(86_400, " until "), (None, ".")])
def test_a_job_that_waits_for_a_signal_says_so_and_cannot_run_now(visit, site, delay, until):
    page = visit(site.url, f"/jobs/{suspended(site, 'signal', 'approval', delay)}")
    page.locator(".note").get_by_text(f"It waits for signal approval{until}").wait_for()
    assert offered(page) == []
    facts = page.locator(".facts").first.inner_text()
    assert ("Times out" in facts, "Due" in facts) == (delay is not None, False)
    assert columns(page, "[aria-label='Life of the job']", 0)[-1] == "waits for signal approval"


def test_a_signal_is_sent_from_the_page_with_a_value_that_is_valid_json(visit, site):
    job = suspended(site, "signal", "approval", None)
    page = visit(site.url, f"/jobs/{job}")
    sent = []
    page.on("request", lambda one: sent.append(one.post_data_json) if one.url.endswith("/signal") else None)
    page.get_by_role("button", name="Send signal").click()
    box = page.get_by_role("dialog")
    assert box.get_by_label("Signal", exact=False).first.input_value() == "approval"
    value = box.locator("[name=value]")
    value.fill("{yes}")
    box.get_by_role("button", name="Send").click()
    refused = box.locator("label", has=page.locator("[name=value]")).get_by_role("alert")
    refused.get_by_text("The value is not valid JSON").wait_for()
    assert sent == []
    value.fill('{"by": "ada", "order": 12345678901234567890}')
    box.get_by_role("button", name="Send").click()
    page.locator("#toast", has_text="The signal is sent: the job is queued.").wait_for()
    page.locator("main .title .badge.queued").wait_for()
    claim = {"queues": ["suspends-signal-approval"], "worker": "w"}
    (lease,) = [
        one for one in site.stock.ask("POST", "/jobs/claim", claim | {"n": 9})["jobs"] if one["id"] == job
    ]
    steps = site.stock.ask("POST", f"/jobs/{job}/step", {"token": lease["token"]})["steps"]
    assert steps["approval"]["value"] == {"by": "ada", "order": 12345678901234567890}
    page.locator("main .title .badge.running").wait_for()
    assert "waited for signal approval" in columns(page, "[aria-label='Life of the job']", 0)
    page = visit(site.url, "/audit")
    row = page.locator("[aria-label=Audit] tbody tr", has_text=job).first
    row.get_by_role("link", name=job).click()
    page.wait_for_url(f"**/ui/jobs/{job}")


def test_a_signal_that_the_server_refuses_leaves_the_dialog_open(visit, site):
    job = suspended(site, "signal", "go", None)
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name="Send signal").click()
    box = page.get_by_role("dialog")
    box.locator("[name=name]").fill("no such name")
    box.get_by_role("button", name="Send").click()
    box.get_by_role("alert").first.wait_for()
    box.locator("[name=name]").fill("charge")
    box.get_by_role("button", name="Send").click()
    box.get_by_text("has kept charge (step)").wait_for()
    box.locator("[name=name]").fill("later")
    box.get_by_role("button", name="Send").click()
    page.locator("#toast", has_text="The signal is kept: the job still waits for go.").wait_for()
    assert site.stock.ask("GET", f"/jobs/{job}")["awaits"] == "signal go"


def test_only_roles_that_may_send_signals_are_offered_it(visit, settings):
    tokens = {role: f"a-secret-of-a-{role}-0123456" for role in ("read", "submit", "admin")}
    roles = {"submit": "read,submit"}
    listed = " ".join(f"{name}:{roles.get(name, name)}:{secret}" for name, secret in tokens.items())
    with serve_process(settings, tokens=f"{listed} w:work,submit:a-secret-of-the-worker-01") as server:
        stock = Stock(server.url, "a-secret-of-the-worker-01")
        job = stock.settle(stock.held("order", "roles"), "suspend", kind="signal", name="go")
        for role, offers in (("read", False), ("submit", True), ("admin", True)):
            page = visit(server.url, f"/jobs/{job}", token=tokens[role])
            page.get_by_role("button", name="Copy id").wait_for()
            if offers:
                page.get_by_role("button", name="Send signal").wait_for()
            else:
                page.get_by_role("link", name="Audit").wait_for(state="detached")
                assert page.get_by_role("button", name="Send signal").count() == 0


def test_an_attempt_that_was_suspended_is_not_drawn_as_a_failure(visit, site):
    page = visit(site.url, f"/jobs/{suspended(site, 'signal', 'calm', None)}")
    page.locator(".attempts .badge.scheduled", has_text="suspended").wait_for()
    assert columns(page, "[aria-label='Life of the job']", 5)[:2].count("suspended") == 1
    assert page.locator("main :is(.bar.bad, .badge.dead, .code)").count() == 0


def test_a_job_that_sleeps_says_so_and_can_run_now(visit, site):
    job = suspended(site, "sleep", "cool-off", 3600)
    page = visit(site.url, f"/jobs/{job}")
    page.locator(".note").get_by_text("It sleeps: cool-off until ").wait_for()
    (button,) = offered(page)
    button.click()
    page.wait_for_selector("main .title .badge.queued")


def test_the_kept_steps_of_a_job_are_listed(visit, site):
    page = visit(site.url, f"/jobs/{suspended(site, 'sleep', 'short', 3600)}")
    region = "[aria-label='Kept steps']"
    rows = zip(*(columns(page, region, n) for n in range(3)), strict=True)
    assert sorted(rows) == [("charge", "step", "16 B"), ("ship", "step", "2.9 KiB")]
    page = visit(site.url, f"/jobs/{site.stock.ids['queued']}")
    page.get_by_role("heading", name="Attempts").wait_for()
    assert page.locator(region).count() == 0


def test_jobs_of_a_workflow_say_what_they_wait_for_and_why_they_were_cancelled(visit, site):
    with SyncClient(site.settings) as client, client.workflow() as flow:
        first = flow.add(part.job(1))
        held = flow.add(part.job(2), after=[first, flow.add(part.job(3))], on_failure="hold")
        cancelled = flow.add(part.job(4), after=first)
    page = visit(site.url, f"/jobs/{cancelled.id}")
    page.locator(".note").get_by_text("It waits for 1 job.").wait_for()
    page = visit(site.url, f"/jobs/{held.id}")
    page.locator(".note").get_by_text("It waits for 2 jobs.").wait_for()
    (button,) = offered(page)
    assert "primary" not in button.get_attribute("class")
    leases = site.stock.ask("POST", "/jobs/claim", {"queues": ["parts"], "worker": "w", "n": 2})["jobs"]
    (lease,) = [lease for lease in leases if lease["id"] == first.id]
    site.stock.settle(lease, "fail", code="Boom", message="words", again=False)
    page = visit(site.url, f"/jobs/{held.id}")
    page.locator(".note").get_by_text("It is held: waits for the retry of ").wait_for()
    assert "Gives up" in page.locator(".facts").first.inner_text()
    (button,) = offered(page)
    button.click()
    asked = page.get_by_role("dialog", name="Run this job of part now?")
    asked.get_by_text("It runs without what it waits for").wait_for()
    page.keyboard.press("Escape")
    assert site.stock.ask("GET", f"/jobs/{held.id}")["state"] == "scheduled"
    page.locator(".note").get_by_role("link", name=first.id).click()
    page.wait_for_url(f"**/ui/jobs/{first.id}")
    page.wait_for_selector("main .title .badge.dead")
    page = visit(site.url, f"/jobs/{cancelled.id}")
    assert page.locator(".note.error").inner_text().split() == ["upstream", "job", first.id, "is", "dead"]


def test_a_list_says_what_each_scheduled_job_waits_for(visit, site):
    signal, sleep = suspended(site, "signal", "listed", None), suspended(site, "sleep", "rest", 3600)
    with SyncClient(site.settings) as client, client.workflow() as flow:
        first = flow.add(part.job(1))
        both = flow.add(part.job(2), after=[first, flow.add(part.job(3))], on_failure="hold")
        held = flow.add(part.job(4), after=first, on_failure="hold")
    site.stock.ask("PATCH", "/queues/parts", {"paused": False})
    while True:
        claimed = site.stock.ask("POST", "/jobs/claim", {"queues": ["parts"], "worker": "w", "n": 1})["jobs"]
        if claimed[0]["id"] == first.id:
            break
        site.stock.settle(claimed[0], "complete", result=1)
    site.stock.settle(claimed[0], "fail", code="Boom", message="words", again=False)
    page = visit(site.url, "/jobs?state=scheduled")
    for job, words in (
        (signal, "waits for signal listed"),
        (sleep, "sleeps: rest"),
        (both.id, "held: waits for a retry"),
        (held.id, "held: waits for a retry"),
    ):
        page.locator(f"tr[data-key='{job}']").get_by_text(words, exact=True).wait_for()
    row = page.locator(f"tr[data-key='{held.id}']")
    row.get_by_role("link", name="held: waits for a retry").click()
    page.wait_for_url(f"**/ui/jobs/{first.id}")
