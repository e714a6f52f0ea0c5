"""Each order by the keyboard alone: to its button with Tab, through its dialog with Enter, and back."""

import json

import pytest

from tests.support.dashboard_pages import read, until_true
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]

FOCUSED = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
SECRET = "a-secret-of-the-boss-0123"
PRESSES = 120


def tab_to(page, name, key="Tab"):
    """Press Tab until the focus is on the element with this name."""
    seen = []
    for _ in range(PRESSES):
        page.keyboard.press(key)
        seen.append(page.evaluate(FOCUSED))
        if seen[-1] == name:
            return
    raise AssertionError(f"Tab does not reach {name}: {seen}")


def press(page, name):
    """Press the button of this name, once it is there."""
    page.get_by_role("button", name=name, exact=True).wait_for()
    tab_to(page, name)
    page.keyboard.press("Enter")


def said(page, text):
    """Wait for the message at the edge of the page."""
    page.locator("#toast", has_text=text).wait_for()


@pytest.mark.parametrize("verb", ["Retry", "Run now", "Cancel", "Erase"])
def test_a_job_is_ordered_by_keys(visit, site, verb):
    stock, queue = site.stock, f"keys-{verb[:3]}"
    is_dead = verb in ("Retry", "Erase")
    job = stock.dead("t", queue, "Boom", "words") if is_dead else stock.submit("t", queue, delay=3600)
    page = visit(site.url, f"/jobs?queue={queue}")
    page.wait_for_selector(f"tr[data-key='{job}']")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{job}")
    press(page, verb)
    if verb in ("Cancel", "Erase"):
        page.get_by_role("dialog").wait_for()
        assert page.evaluate(FOCUSED) == f"{verb} the job"
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.evaluate(FOCUSED) == verb, "the focus returns to its button"
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Enter")
    ends = {"Retry": "queued again", "Run now": "is queued", "Cancel": "is cancelled", "Erase": "is erased"}
    said(page, ends[verb])
    states = [one["state"] for one in stock.ask("GET", f"/jobs?queue={queue}")["jobs"]]
    assert states == {"Retry": ["queued"], "Run now": ["queued"], "Cancel": ["cancelled"], "Erase": []}[verb]


def test_a_job_is_submitted_again_and_copied_by_keys(visit, site):
    job = site.stock.ids["dead"]
    page = visit(site.url, f"/jobs/{job}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    press(page, "Copy id")
    said(page, "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == job
    press(page, "Edit and submit again")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Control+a")
    page.keyboard.type('{"by": "keys"}')
    tab_to(page, "Submit")
    page.keyboard.press("Enter")
    page.wait_for_selector("main .title .badge.queued")
    assert site.stock.ask("GET", f"/jobs/{page.url.rpartition('/')[2]}")["payload"] == {"by": "keys"}


@pytest.mark.parametrize(
    ("label", "order", "end", "state"),
    [
        ("Retry 3", "Retry 3", "3 jobs queued again.", ["queued"] * 3 + ["scheduled"]),
        ("Erase 3", "Erase 3", "3 jobs erased.", ["scheduled"]),
        ("Cancel 1 waiting", "Cancel 1", "1 job cancelled.", ["cancelled"] + ["dead"] * 3),
    ],
)
def test_a_group_of_failures_is_ordered_by_keys(visit, site, label, order, end, state):
    stock, queue = site.stock, f"group-{label[:3]}"
    for _ in range(3):
        stock.dead("t", queue, "Boom", "words")
    stock.settle(stock.held("t", queue, backoff=3600), "fail", code="Boom", message="words")
    page = visit(site.url, f"/failures?queue={queue}")
    press(page, label)
    box = page.get_by_role("dialog")
    box.get_by_role("button", name=order, exact=True).wait_for()
    until_true(page, f"({FOCUSED}) === {json.dumps(order)}")
    page.keyboard.press("Enter")
    box.get_by_text(end).wait_for()
    until_true(page, f"({FOCUSED}) === 'Close'")
    page.keyboard.press("Enter")
    box.wait_for(state="detached")
    assert sorted(one["state"] for one in stock.ask("GET", f"/jobs?queue={queue}")["jobs"]) == state


def test_a_queue_is_paused_limited_and_resumed_by_keys(visit, site):
    site.stock.submit("t", "by-keys")
    page = visit(site.url, "/queues")
    press(page, "Pause by-keys")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Enter")
    said(page, "The queue is paused.")
    press(page, "Configure by-keys")
    page.get_by_role("dialog").wait_for()
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    said(page, "The queue is configured.")
    press(page, "Resume by-keys")
    said(page, "The queue is resumed.")
    queue = site.stock.ask("GET", "/queues/by-keys")
    assert (queue["paused_at"], queue["limits"]) == (None, {"jobs": 12})


def test_a_schedule_is_paused_resumed_and_run_by_keys(visit, site):
    page = visit(site.url, "/schedules")
    press(page, "Pause crm")
    said(page, "The schedule is paused.")
    press(page, "Resume crm")
    said(page, "The schedule is resumed.")
    press(page, "Run now: crm")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs/*")
    read(page)
    assert page.get_by_role("heading", level=1).inner_text() == "sync_crm"


def test_a_worker_is_drained_by_keys(visit, site):
    site.stock.ask("PUT", "/workers/by-keys", {"life": "1", "about": {"host": "mill", "slots": 2}})
    page = visit(site.url, "/workers")
    press(page, "Drain by-keys")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Enter")
    page.locator("tr[data-key=by-keys] .badge.draining").wait_for()


def test_a_list_is_filtered_turned_and_opened_by_keys(visit, site):
    for n in range(55):
        site.stock.submit("many", "turned", id=f"turned-{n}")
    page = visit(site.url, "/jobs")
    page.keyboard.press("/")
    page.keyboard.type("turned")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs?queue=turned")
    page.wait_for_selector("#jobs tbody tr:nth-child(50)")
    page.get_by_role("link", name="Next page").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.wait_for_url("**cursor=*")
    page.wait_for_selector("#jobs tbody tr:nth-child(50)", state="detached")
    page.keyboard.press("p")
    page.wait_for_url("**/ui/jobs?queue=turned")


def test_a_token_is_given_and_forgotten_by_keys(visit, settings):
    with serve_process(settings, tokens=f"boss:admin:{SECRET}") as server:
        page = visit(server.url, "/queues", ready=False)
        page.get_by_role("dialog", name="Token").wait_for()
        page.keyboard.type(SECRET)
        page.keyboard.press("Enter")
        page.get_by_text("No queues yet.").wait_for()
        press(page, "Forget token")
        page.get_by_role("dialog", name="Token").wait_for()
