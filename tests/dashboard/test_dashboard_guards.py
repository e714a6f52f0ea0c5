"""What the page must not do: offer what the token may not, send the token elsewhere, act on a job that has changed, hide a refusal."""

import json
import re

import pytest

from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import columns, read, until_true
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]

READ, ADMIN = "a-secret-of-the-reader-01", "a-secret-of-the-boss-0123"
TOKENS = f"ada:read:{READ} boss:admin:{ADMIN}"
ORDERS = {
    "/failures": {"Retry 3", "Erase 3", "Cancel 1 waiting"},
    "/queues": {"Pause images", "Configure images", "Resume mail", "Purge 5: mail"},
    "/schedules": {"Run now: crm", "Pause crm", "Resume invoices"},
    "/schedules/crm": {"Run now: crm", "Pause crm"},
    "/workers": {"Drain mill-7"},
    "/jobs/DEAD": {"Retry", "Erase", "Edit and submit again"},
    "/jobs/QUEUED": {"Cancel", "Edit and submit again"},
    "/jobs/SCHEDULED": {"Run now", "Cancel", "Edit and submit again"},
}
"""The buttons of each view that give an order."""
FREE = {"Forget token", "Keys", "Copy id", "Copy as curl", "Copy as Python", "Copy as JSON"}
"""Those that give none."""
NAMES = "(all) => all.map((one) => one.getAttribute('aria-label') || one.textContent)"


@pytest.fixture(scope="module")
def guarded(site):
    """The site's namespace on a server with tokens."""
    with serve_process(site.settings, tokens=TOKENS) as server:
        yield server


@pytest.mark.parametrize("path", ORDERS)
@pytest.mark.parametrize("token", [READ, ADMIN], ids=["read", "admin"])
def test_a_view_has_the_buttons_of_the_tokens_roles(visit, site, guarded, path, token):
    expected, place = ORDERS[path], path
    for state in ("dead", "queued", "scheduled"):
        place = place.replace(state.upper(), site.stock.ids[state])
    page = visit(guarded.url, place, token=token, ready=False)
    page.locator("main table, main .facts").first.wait_for()
    until_true(page, "performance.getEntriesByName(new URL('/whoami', location.href).href).length")
    page.wait_for_timeout(600)  # two repaints
    shown = set(page.eval_on_selector_all("#tools button, main button", NAMES)) - FREE
    if token == READ:
        assert shown == set()
    else:
        assert expected <= shown


def test_a_button_does_not_appear_before_the_roles_are_known(visit, guarded):
    page = visit(guarded.url, "/nonsense", token=READ)
    asked = []
    page.route("**/whoami", lambda route: asked.append(route))
    page.goto(f"{guarded.url}/ui/queues")
    until_true(page, "performance.getEntriesByName(new URL('/openapi.json', location.href).href).length")
    page.wait_for_timeout(600)
    assert len(asked) == 1
    assert page.locator("main button, main tr").count() == 0
    asked[0].continue_()
    page.wait_for_selector("tr[data-key=images]")
    assert page.locator("main button").count() == 0


def test_the_token_is_sent_in_a_header_to_the_api_and_nowhere_else(visit, site, guarded):
    page = visit(guarded.url, "/nonsense", token=ADMIN)
    sent = []
    page.on("request", lambda request: sent.append(request))
    for path in ("", "/jobs", f"/jobs/{site.stock.ids['dead']}", "/failures", "/audit"):
        page.goto(f"{guarded.url}/ui{path}")
        read(page)
    page.wait_for_selector(".mark.live")
    assert len(sent) > 20
    for request in sent:
        assert ADMIN not in request.url
        assert request.url.startswith(guarded.url)
        is_file = "/ui" in request.url
        assert request.all_headers().get("authorization") == (None if is_file else f"Bearer {ADMIN}"), (
            request.url
        )
    kept = page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])")
    assert json.loads(kept) == [{"sublet-token": ADMIN}, {}, ""]
    assert ADMIN not in page.content()


@pytest.mark.parametrize("token", [READ, ADMIN], ids=["read", "admin"])
def test_payloads_and_results_are_hidden_from_the_role_read(visit, site, guarded, token):
    texts = {"completed": '"width": 640', "running": '"page": 3', "queued": "ada@example.org"}
    for state, text in texts.items():
        page = visit(guarded.url, f"/jobs/{site.stock.ids[state]}", token=token)
        page.get_by_role("button", name="Copy id").wait_for()
        place = page.get_by_text("Not shown to this token") if token == READ else page.get_by_text(text)
        place.first.wait_for()
        assert (text in page.locator("main").inner_text()) == (token == ADMIN)
        assert page.get_by_role("button", name="Copy as curl").count() == (token == ADMIN)
    page = visit(guarded.url, "/schedules/nightly-report", token=token)
    place = (
        page.get_by_text("Not shown to this token") if token == READ else page.get_by_text('"kind": "all"')
    )
    place.wait_for()


def test_an_order_for_a_job_that_has_changed_is_refused_and_says_so(visit, site):
    job = site.stock.dead("t", "overtaken", "Boom", "words")
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name="Retry").wait_for()

    def overtake(route):  # before the order arrives, the job is retried and dies again
        if route.request.method == "POST" and not done:
            done.append(route.request.post_data_json)
            site.stock.ask("POST", f"/jobs/{job}/retry")
            (lease,) = site.stock.ask("POST", "/jobs/claim", {"queues": ["overtaken"], "worker": "w"})["jobs"]
            site.stock.settle(lease, "fail", code="Boom", message="again", again=False)
        route.continue_()

    done = []
    page.route("**/retry", overtake)
    page.get_by_role("button", name="Retry").click()
    page.locator("#toast.bad", has_text="It has changed meanwhile: nothing was done.").wait_for()
    assert site.stock.ask("GET", f"/jobs/{job}")["state"] == "dead"
    page.get_by_text("again").first.wait_for()  # the page shows the job as it is now


@pytest.mark.parametrize(
    ("path", "label", "confirm", "route"),
    [
        ("/queues", "Pause images", "Pause", "**/queues/images"),
        ("/queues", "Configure images", "Configure", "**/queues/images"),
        ("/schedules", "Pause crm", "", "**/schedules/crm/pause"),
        ("/schedules", "Run now: crm", "Run now", "**/schedules/crm/run"),
        ("/workers", "Drain mill-7", "Drain", "**/workers/mill-7/drain"),
    ],
)
def test_a_refused_order_is_shown(visit, site, path, label, confirm, route):
    page = visit(site.url, path)
    problem = {"type": "urn:sublet:problem:forbidden", "detail": "use a token with the role admin"}
    page.route(route, lambda route: route.fulfill(status=403, json=problem))
    page.get_by_role("button", name=label).click()
    if confirm:
        page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()
    page.get_by_role("alert").get_by_text("use a token with the role admin").wait_for()


def test_an_order_for_many_stops_if_it_finds_far_more_than_were_counted(visit, site):
    for _ in range(3):
        site.stock.dead("t", "runaway", "Boom", "words")
    page = visit(site.url, "/failures?queue=runaway")
    sent = []

    def answer(route):
        body = route.request.post_data_json
        sent.append(body)
        counted, jobs = {"found": 3, "counted_at": "2030-01-31T09:00:00Z"}, [{"id": "0-x", "status": 200}] * 3
        if body.get("dry_run"):
            route.fulfill(json=counted | {"jobs": [], "cursor": None})
        elif not body["cursor"]:
            route.fulfill(json=counted | {"jobs": jobs, "cursor": "more"})
        else:
            problem = {"type": "urn:sublet:problem:changed", "detail": "6 jobs were found, and 3 expected"}
            route.fulfill(status=409, json=problem)

    page.route("**/jobs/retry", answer)
    page.get_by_role("button", name="Retry 3").click()
    box = page.get_by_role("dialog")
    box.get_by_text("3 jobs found.").wait_for()
    box.get_by_role("button", name="Retry 3").click()
    box.get_by_role("alert").get_by_text("6 jobs were found, and 3 expected").wait_for()
    box.get_by_text("3 jobs queued again.").wait_for()
    assert not box.get_by_role("button", name="Count again").is_visible()
    counted, *orders = sent
    assert counted["dry_run"]
    same = {"filter": orders[0]["filter"], "expected": 3, "counted_at": "2030-01-31T09:00:00Z"}
    assert orders == [same | {"cursor": None}, same | {"cursor": "more"}]


def test_rows_stay_while_the_keyboards_focus_is_on_one(visit, site):
    first = site.stock.submit("t", "focused")
    page = visit(site.url, "/jobs?queue=focused")
    page.wait_for_selector(".mark.live")
    page.wait_for_selector(f"#jobs tr[data-key='{first}']")
    page.keyboard.press("j")
    second = site.stock.submit("t", "focused")
    page.get_by_role("button", name="1 change above: show").wait_for()
    assert page.locator("#jobs tbody tr").count() == 1
    page.get_by_role("button", name="1 change above: show").click()
    page.wait_for_selector(f"#jobs tr[data-key='{second}']")


def test_a_row_that_leaves_the_list_stays_in_place_under_the_pointer(visit, site):
    job = site.stock.submit("t", "leaves", delay=3600)
    page = visit(site.url, "/jobs?queue=leaves&state=scheduled")
    page.wait_for_selector(".mark.live")
    row = page.locator(f"#jobs tr[data-key='{job}']")
    row.hover()
    site.stock.ask("POST", f"/jobs/{job}/promote")
    row.get_by_text("moved on").wait_for()
    page.mouse.move(0, 0)
    row.wait_for(state="detached")


def test_a_late_answer_of_the_view_before_is_dropped(visit, site):
    page = visit(site.url, "/jobs")
    held = []
    page.route(re.compile(r"/queues\?limit=200$"), lambda route: held.append(route) or None)
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/ui/queues")
    until_true(page, "document.querySelector('h1').textContent === 'Queues'")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_selector("tr[data-key=crm]")
    with page.expect_response(re.compile(r"/queues\?limit=200$")):
        held[0].continue_()
    page.wait_for_timeout(600)  # two repaints
    assert page.get_by_role("heading", level=1).inner_text() == "Schedules"
    assert columns(page, "[aria-label=Schedules]", 0)


def test_a_lease_that_heartbeats_renew_is_not_shown_as_ended(visit, settings):
    with serve_process(settings) as server:
        stock = Stock(server.url)
        lease = stock.held("t", "renewed", lease=4)
        page = visit(server.url, "/jobs?state=running")
        page.wait_for_selector("#jobs .lease")
        reads, texts = [], set()
        page.on(
            "request", lambda request: reads.append(request) if "/jobs?state=running" in request.url else None
        )
        for _ in range(600):
            stock.settle(lease, "heartbeat", lease=4)
            page.wait_for_timeout(50)
            texts.add(page.locator("#jobs .lease").inner_text())
            if len(reads) > 2:
                break
        assert len(reads) > 2, "it is read again when it should have ended"
        assert not any("over" in text for text in texts), texts
        page.locator("#jobs .lease", has_text="over").wait_for()
