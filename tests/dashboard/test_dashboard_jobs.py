"""Lists of jobs, and the page of one job, in a real browser."""

import json
import re
from urllib.parse import quote

import pytest

from tests.support.dashboard_pages import columns, read

pytest_plugins = ["tests.support.browser"]
STATES = ("scheduled", "queued", "running", "completed", "dead", "cancelled")


def test_jobs_are_listed_by_state_and_the_filter_is_the_url(visit, site):
    page = visit(site.url, "/jobs")
    for state in STATES:
        page.get_by_role("navigation", name="States").get_by_role("link", name=state).click()
        page.wait_for_url(f"**/ui/jobs?state={state}")
        read(page)
        page.wait_for_selector(f"#jobs tbody .badge.{state}")
        assert set(columns(page, "#jobs", 2)) == {state}
    page.get_by_label("queue", exact=True).fill("billing")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs?state=cancelled&queue=billing")
    page.go_back()
    page.wait_for_url("**/ui/jobs?state=cancelled")
    page.reload()
    page.wait_for_selector(f"#jobs tr[data-key='{site.stock.ids['cancelled']}']")


FILTERS = {
    "tag": "tenant:acme",
    "error code": "KeyError",
    "worker": "mill-7",
    "task": "import_orders",
}


@pytest.mark.parametrize("label", FILTERS)
def test_a_filter_of_the_form_is_the_url(visit, site, label):
    value, name = FILTERS[label], {"error code": "code"}.get(label, label)
    expected = {job["id"] for job in site.stock.ask("GET", f"/jobs?limit=200&{name}={quote(value)}")["jobs"]}
    page = visit(site.url, "/jobs?state=dead&state=running")
    page.get_by_label(label, exact=True).fill(value)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs?state=dead&state=running&{name}={quote(value, safe='')}")
    read(page)
    page.wait_for_selector("#jobs tbody tr")
    shown = set(page.eval_on_selector_all("#jobs tbody tr", "(rows) => rows.map((row) => row.dataset.key)"))
    assert shown <= expected
    assert not page.locator(".tabs b").count(), "the server counts all jobs, not those of a filter"
    assert set(columns(page, "#jobs", 2)) <= {"dead", "running"}
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url("**/ui/jobs?state=dead&state=running")


def test_a_time_is_local_in_its_field_and_utc_in_the_url(visit, site):
    page = visit(site.url, "/jobs")  # in Berlin
    page.get_by_label("submitted since").fill("2026-01-31T12:00")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs?since=2026-01-31T11%3A00%3A00Z")
    read(page)
    page.wait_for_selector("#jobs tbody tr")
    assert page.get_by_label("submitted since").input_value().startswith("2026-01-31T12:00")
    page = visit(site.url, "/jobs?until=2026-07-31T10:00:00.250Z")
    assert "No jobs match the filter." in page.locator("main").inner_text()
    page.get_by_label("queue", exact=True).fill("mail")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs?until=2026-07-31T10%3A00%3A00.250Z&queue=mail")  # not rounded
    page.get_by_label("submitted before").fill("")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs?queue=mail")


def test_tags_error_codes_and_workers_are_links(visit, site):
    page = visit(site.url, f"/jobs/{site.stock.ids['running']}")
    page.get_by_role("link", name="tenant:acme").click()
    page.wait_for_url("**/ui/jobs?tag=tenant%3Aacme")
    read(page)
    assert [row.get_attribute("data-key") for row in page.locator("#jobs tbody tr").all()] == [
        site.stock.ids["running"]
    ]
    page.locator("#jobs").get_by_role("link", name="import").click()
    page.wait_for_url("**/ui/jobs?tag=import")
    page.locator("#jobs a[href*='tag=import&worker=']").click()  # painted with the new filter
    page.wait_for_url("**/ui/jobs?tag=import&worker=mill-7")
    page = visit(site.url, "/jobs?state=dead&queue=billing")
    page.locator("#jobs").get_by_role("link", name="timed_out").click()
    page.wait_for_url("**/ui/jobs?state=dead&queue=billing&code=timed_out")


def test_a_filter_that_reads_too_much_stops_and_goes_on_when_asked(visit, site):
    page = visit(site.url, "/jobs?state=dead")
    asked = []

    def answer(route):
        asked.append(route.request.url)
        body = {"jobs": [], "cursor": f"c{len(asked)}"}
        route.fulfill(status=200, content_type="application/json", body=json.dumps(body))

    page.route("**/jobs?*code=Rare*", answer)
    page.get_by_label("error code").fill("Rare")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Search on").wait_for()
    assert len(asked) == 5
    site.stock.submit("t", "meanwhile")
    page.get_by_role("link", name="Search on").click()
    page.wait_for_url("**/ui/jobs?state=dead&code=Rare&cursor=c5")
    page.get_by_role("link", name="Search on").wait_for()
    assert "cursor=c5" in asked[5]


@pytest.mark.parametrize(
    ("text", "query"),
    [("mail", "queue=mail"), ("tenant:acme", "tag=tenant%3Aacme"), ("resize_image", "task=resize_image")],
)
def test_a_search_finds_the_jobs_of_a_queue_a_tag_or_a_task(visit, site, text, query):
    page = visit(site.url)
    page.keyboard.press("/")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs?{query}")


def test_a_list_has_pages(visit, site):
    for n in range(55):
        site.stock.submit("many", "many", id=f"many-{n}")
    page = visit(site.url, "/jobs?queue=many")
    page.wait_for_selector("#jobs tbody tr:nth-child(50)")
    page.get_by_role("link", name="Next page").click()
    page.wait_for_selector("#jobs tbody tr:nth-child(50)", state="detached")
    assert page.locator("#jobs tbody tr").count() == 5
    assert page.get_by_role("link", name="Next page").count() == 0
    page.get_by_role("link", name="First page").click()
    page.wait_for_selector("#jobs tbody tr:nth-child(50)")


def test_an_empty_list_says_why_it_is_empty(visit, site):
    page = visit(site.url, "/jobs?state=dead&queue=nothing")
    assert "No dead jobs match the filter." in page.locator("main").inner_text()
    assert "There is no such page." in visit(site.url, "/nonsense").locator("main").inner_text()
    missing = visit(site.url, "/jobs/0-nothing")
    assert "Not found" in missing.get_by_role("alert").inner_text()


def test_a_job_shows_its_life_its_attempts_and_its_data(visit, site):
    page = visit(site.url, f"/jobs/{site.stock.ids['dead']}")
    text = page.locator("main").inner_text()
    assert "charge_card" in page.get_by_role("heading", level=1).inner_text()
    for expected in (
        "timed_out",
        "the attempt took 300 s",
        "KeyError: 'c-1841'",
        "mill-7",
        "attempt 1",
    ):
        assert expected in text, expected
    page = visit(site.url, f"/jobs/{site.stock.ids['running']}")
    text = page.locator("main").inner_text()
    for expected in ("40 %", "wrote a-640.png", '"page": 3', "tenant:acme", "running"):
        assert expected in text, expected
    page = visit(site.url, f"/jobs/{site.stock.ids['completed']}")
    assert '"width": 640' in page.locator("main").inner_text()


def test_a_job_that_was_released_often_has_used_no_try(visit, site):
    job = site.stock.submit("t", "released", max_attempts=3)
    for _ in range(4):
        (lease,) = site.stock.ask("POST", "/jobs/claim", {"queues": ["released"]})["jobs"]
        site.stock.settle(lease, "release")
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_text("0 of 3 used, claimed 4 times").wait_for()
    page = visit(site.url, "/jobs?queue=released")
    page.locator(f"#jobs tr[data-key='{job}']").get_by_text("0 of 3").wait_for()


@pytest.mark.parametrize("verb", ["Retry", "Run now", "Cancel"])
def test_an_order_changes_the_job_and_the_page_shows_it(visit, site, verb):
    stock, queue = site.stock, f"orders-{verb[:3]}"
    job = stock.dead("t", queue, "Boom", "words") if verb == "Retry" else stock.submit("t", queue, delay=3600)
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name=verb, exact=True).click()
    if verb == "Cancel":
        page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    state = "cancelled" if verb == "Cancel" else "queued"
    page.wait_for_selector(f"main .title .badge.{state}")
    assert stock.ask("GET", f"/jobs/{job}")["state"] == state


def test_a_waiting_job_is_rescheduled_from_its_page(visit, site):
    stock = site.stock
    job = stock.submit("t", "reschedules")
    page = visit(site.url, f"/jobs/{job}")
    button, box = page.get_by_role("button", name="Reschedule", exact=True), page.get_by_role("dialog")
    button.click()
    box.get_by_role("button", name="Reschedule").click()
    assert "Change the time or the priority." in box.get_by_role("alert").inner_text()
    box.get_by_label("Time").fill("2030-01-31T09:00:00")
    box.get_by_label("Priority").fill("-7")
    box.get_by_role("button", name="Reschedule").click()
    page.wait_for_selector("main .title .badge.scheduled")
    wanted = page.evaluate("new Date('2030-01-31T09:00:00').toISOString()")
    made = stock.ask("GET", f"/jobs/{job}")
    assert (made["due_at"], made["priority"], made["revision"]) == (wanted, -7, 1)
    button.click()
    assert box.get_by_label("Time").input_value().startswith("2030-01-31T09:00")
    box.get_by_label("Priority").fill("8")
    box.get_by_role("button", name="Reschedule").click()
    page.locator("dd", has_text=re.compile("^8$")).wait_for()
    assert stock.ask("GET", f"/jobs/{job}") == made | {"priority": 8, "revision": 2}
    button.click()
    box.get_by_label("Time").fill("2001-01-31T09:00:00")
    box.get_by_role("button", name="Reschedule").click()
    page.wait_for_selector("main .title .badge.queued")
    page = visit(site.url, f"/jobs/{site.stock.ids['running']}")
    page.get_by_role("button", name="Copy id").wait_for()
    assert page.get_by_role("button", name="Reschedule").count() == 0


def test_a_finished_job_is_erased_from_its_page(visit, site):
    job = site.stock.dead("t", "erased-one", "Boom", "words")
    page = visit(site.url, f"/jobs/{site.stock.ids['queued']}")
    page.get_by_role("button", name="Copy id").wait_for()
    assert page.get_by_role("button", name="Erase").count() == 0
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name="Erase").click()
    page.get_by_role("dialog").get_by_role("button", name="Erase the job").click()
    page.wait_for_url("**/ui/jobs?state=dead")
    assert site.stock.ask("GET", "/jobs?queue=erased-one")["jobs"] == []


def test_a_job_is_submitted_again_with_another_payload(visit, site):
    page = visit(site.url, f"/jobs/{site.stock.ids['dead']}")
    page.get_by_role("button", name="Edit and submit again").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Payload").fill("{")
    box.get_by_role("button", name="Submit").click()
    assert "not valid JSON" in box.get_by_role("alert").inner_text()
    box.get_by_label("Payload").fill('{"amount": 12}')
    box.get_by_label("Queue").fill("again")
    box.get_by_role("button", name="Submit").click()
    page.wait_for_selector("main .title .badge.queued")
    made = site.stock.ask("GET", f"/jobs/{page.url.rpartition('/')[2]}")
    assert (made["task"], made["queue"], made["payload"]) == ("charge_card", "again", {"amount": 12})


def test_numbers_are_shown_and_submitted_as_they_are(visit, site):
    payload = {"n": 9007199254740993, "all": [12345678901234567890123, 1.5, 7], "rate": 1.0}
    page = visit(site.url, f"/jobs/{site.stock.submit('t', 'large', payload=payload)}")
    read(page)
    text = page.locator("main").inner_text()
    assert ("9007199254740993" in text, '"rate": 1.0' in text) == (True, True)
    page.get_by_role("button", name="Edit and submit again").click()
    page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    page.get_by_text("Submitted.").wait_for()
    made = [job["payload"] for job in site.stock.ask("GET", "/jobs?queue=large")["jobs"]]
    assert repr(made) == repr([payload, payload])  # 1 is not 1.0


def test_a_job_is_submitted_again_in_its_group_and_at_its_cost(visit, site):
    options = {"group": "acme", "cost": 3, "priority": 7, "tags": ["a"]}
    page = visit(site.url, f"/jobs/{site.stock.submit('t', 'billed', **options)}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Python").click()
    page.wait_for_selector("#toast")
    assert 'group="acme", cost=3' in page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("button", name="Edit and submit again").click()
    page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    page.get_by_text("Submitted.").wait_for()
    made = site.stock.ask("GET", "/jobs?queue=billed")["jobs"]
    assert [{name: job[name] for name in options} for job in made] == [options, options]


def test_a_copied_command_has_no_characters_that_change_its_direction(visit, site):
    name = "a\u202egnp.exe\u2066"
    job = site.stock.submit("t", "bidi", payload={"name": name})
    site.stock.ask("POST", f"/jobs/{job}/cancel")  # a list of all jobs begins with the unfinished ones
    page = visit(site.url, f"/jobs/{job}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for button in ("Copy as curl", "Copy as Python"):
        page.get_by_role("button", name=button).click()
        page.wait_for_selector("#toast")
        text = page.evaluate("navigator.clipboard.readText()")
        assert (text.isascii(), "u202egnp" in text) == (True, True)
        page.evaluate("document.getElementById('toast')?.remove()")
    sent = re.search(r'json.loads\((".*")\), Options', text)
    assert json.loads(json.loads(sent[1])) == {"name": name}


def test_the_whole_message_of_the_last_error_is_shown(visit, site):
    page = visit(site.url, f"/jobs/{site.stock.dead('t', 'long', 'Boom', 'words ' * 100 + 'end')}")
    page.locator(".note.error", has_text="words end").wait_for()


def test_an_id_that_is_not_there_says_so(visit, site):
    page = visit(site.url)
    page.keyboard.press("/")
    page.keyboard.type("0-nope")
    page.keyboard.press("Enter")
    page.locator("#toast", has_text="No job or workflow 0-nope: it never existed, or was deleted.").wait_for()


def test_a_copy_of_a_job_whose_payload_was_deleted_says_so(visit, site):
    job = site.stock.settle(site.stock.held("t", "copied", payload={"a": 1}), "complete", result=None)
    page = visit(site.url, f"/jobs/{job}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as curl").click()
    page.get_by_text("Copied without arguments").wait_for()


def test_nothing_of_an_erased_job_stays(visit, site):
    job = site.stock.dead("t", "gone", "Boom", "words of the error")
    page = visit(site.url, f"/jobs/{job}")
    read(page)
    page.get_by_text("words of the error").first.wait_for()
    site.stock.ask("POST", f"/jobs/{job}/erase")
    page.get_by_role("button", name="Retry").first.click()
    page.get_by_text("Not found").wait_for()
    assert "words of the error" not in page.locator("main").inner_text()
    assert not page.get_by_role("button", name="Erase").count()


def test_a_job_is_copied_as_curl_as_python_and_by_its_id(visit, site):
    page = visit(site.url, f"/jobs/{site.stock.ids['queued']}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copied = {}
    for name in ("Copy id", "Copy as curl", "Copy as Python"):
        page.get_by_role("button", name=name).click()
        page.wait_for_selector("#toast")
        copied[name] = page.evaluate("navigator.clipboard.readText()")
        page.evaluate("document.getElementById('toast')?.remove()")
    assert copied["Copy id"] == site.stock.ids["queued"]
    assert copied["Copy as curl"].endswith(f"'{site.url}/jobs'")
    sent = json.loads(re.search("--json '(.*?)'", copied["Copy as curl"])[1])
    assert sent == {
        "task": "send_mail",
        "queue": "mail",
        "payload": {"to": "ada@example.org"},
        "max_attempts": 3,
        "priority": 5,
    }
    assert "max_attempts=3" in copied["Copy as Python"]
    compile(copied["Copy as Python"], "copied", "exec")
    assert 'client.submit("send_mail"' in copied["Copy as Python"]


def test_a_change_appears_without_a_reload_and_not_under_the_pointer(visit, site):
    first = site.stock.submit("t", "moving")
    page = visit(site.url, "/jobs?queue=moving")
    page.wait_for_selector(".mark.live")
    row = page.locator(f"#jobs tr[data-key='{first}']")
    row.hover()
    second = site.stock.submit("t", "moving")
    page.get_by_role("button", name="1 change above: show").wait_for()
    assert columns(page, "#jobs", 2) == ["queued"]
    page.mouse.move(0, 0)
    page.wait_for_selector(f"#jobs tr[data-key='{second}']")


def test_an_ended_job_has_the_worker_of_its_last_attempt(visit, site):
    lease = site.stock.held("t", "worked", worker="mill-9")
    job = site.stock.settle(lease, "complete", result=None)
    page = visit(site.url, f"/jobs/{job}")
    page.locator(".facts").get_by_role("link", name="mill-9").click()
    page.wait_for_url("**/ui/jobs?worker=mill-9")
    row = page.locator(f"#jobs tr[data-key='{job}']")
    row.wait_for()
    assert columns(page, "#jobs", 5) == ["mill-9"]


@pytest.mark.parametrize(
    ("query", "is_there"),
    [
        ("", False),
        ("?state=running", True),
        ("?state=dead&state=running", False),
        ("?state=dead&worker=mill-7", True),
    ]
    + [(f"?state={state}", False) for state in STATES if state != "running"],
)
def test_a_list_has_the_column_of_workers_where_each_job_has_one(visit, site, query, is_there):
    page = visit(site.url, f"/jobs{query}")
    read(page)
    heads = page.locator("#jobs thead th").all_inner_texts()
    assert [head.lower() for head in heads].count("worker") == is_there
    assert page.locator("#jobs tbody tr").first.locator("th, td").count() == len(heads)


def test_a_list_of_all_jobs_names_the_worker_of_a_running_one_below_its_lease(visit, site):
    lease = site.stock.held("mix", "mixed", worker="mill-8")
    ended = site.stock.settle(site.stock.held("mix", "mixed-2", worker="mill-8"), "complete", result=None)
    page = visit(site.url, "/jobs?task=mix")
    page.locator(f"#jobs tr[data-key='{ended}']").wait_for()
    running = page.locator(f"#jobs tr[data-key='{lease['id']}'] td.when")
    assert running.inner_text().split("\n")[1:] == ["lease left", "mill-8"]
    assert "mill-8" not in page.locator(f"#jobs tr[data-key='{ended}']").inner_text()
    running.get_by_role("link", name="mill-8").click()
    page.wait_for_url("**/ui/jobs?task=mix&worker=mill-8")
