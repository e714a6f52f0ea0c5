"""The page follows a server that changes, stops, comes back, or asks for a token."""

import re
import signal

import pytest

from sublet_functions.dashboard.files import static_files
from sublet_functions.handlers.events import KEEP_ALIVE
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import go, read, until_true
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]

READ, ADMIN = "a-secret-of-the-reader-01", "a-secret-of-the-boss-0123"
SUBMIT = "a-secret-of-the-script-01"
TOKENS = f"ada:read:{READ} boss:admin:{ADMIN}"


def test_a_stopped_server_greys_the_page_and_the_next_one_takes_over(visit, settings):
    with serve_process(settings) as server:
        port = server.url.rpartition(":")[2]
        Stock(server.url).submit("before", "q")
        page = visit(server.url, "/jobs")
        page.wait_for_selector(".mark.live")
        server.stop()
        page.wait_for_selector("main.stale")
        assert page.locator(".mark").inner_text().startswith("Stale since")
        assert "before" in page.locator("#jobs").inner_text(), "the page shows the last state"
    with serve_process(settings, SUBLET_PORT=port) as server:
        Stock(server.url).submit("after", "q")
        page.wait_for_selector(".mark.live")
        page.wait_for_selector("main:not(.stale)")
        page.get_by_role("link", name="after").wait_for()


def faked(page, url, view):
    page.goto("about:blank")
    page.clock.install()
    page.goto(f"{url}/ui/{view}")


def seconds_until(page, mark, most):
    """Move the page's clock, `most` times by a second, until it has a mark."""
    began = page.evaluate("Date.now()")
    for _ in range(most):
        if page.locator(f".mark.{mark}").count():
            break
        page.clock.run_for(1000)
    page.wait_for_selector(f".mark.{mark}", timeout=2000)
    return (page.evaluate("Date.now()") - began) / 1000


def test_a_frozen_server_makes_the_page_stale_until_it_goes_on(visit, settings):
    with serve_process(settings) as server:
        page = visit(server.url, "/nonsense")
        faked(page, server.url, "nonsense")  # it reads nothing but the stream
        page.wait_for_selector(".mark.live")
        server.signal(signal.SIGSTOP)  # its connections stay open
        assert 15 <= seconds_until(page, "stale", 24) <= 30
        page.wait_for_selector("main.stale")
        server.signal(signal.SIGCONT)
        page.wait_for_selector(".mark.live")
        page.get_by_role("link", name="Queues").click()
        page.get_by_text("No queues yet.").wait_for()
        Stock(server.url).submit("t", "after-the-frost")
        page.wait_for_selector("tr[data-key=after-the-frost]")


def test_a_server_that_only_has_no_events_is_not_called_frozen():
    (silence,) = re.findall(r"const SILENCE = ([\d_]+);", static_files()["live.js"].body.decode())
    assert int(silence) >= 2000 * KEEP_ALIVE


def test_a_page_polls_where_a_gateway_holds_the_stream_back(visit, site):
    page = visit(site.url, "/nonsense", ready=False)

    def answer(route):
        if "text/event-stream" not in route.request.headers["accept"]:
            route.continue_()

    page.route("**/events*", answer)
    faked(page, site.url, "queues")
    seconds_until(page, "polling", 90)
    site.stock.submit("t", "held-back")
    page.wait_for_selector("tr[data-key=held-back]")


def test_a_token_is_asked_for_once_kept_in_the_tab_and_forgotten(visit, settings):
    with serve_process(settings, tokens=TOKENS) as server:
        page = visit(server.url, "/queues", ready=False)
        box = page.get_by_role("dialog", name="Token")
        box.get_by_label("Token").fill("a-wrong-secret-012345678")
        page.keyboard.press("Enter")
        box.get_by_text("the header Authorization has no token that is valid").wait_for()
        box.get_by_label("Token").fill(ADMIN)
        page.keyboard.press("Enter")
        page.get_by_text("No queues yet.").wait_for()
        page.wait_for_selector(".mark.live")
        assert page.evaluate("document.cookie + localStorage.length") == "0"
        page.reload()
        page.get_by_text("No queues yet.").wait_for()
        page.get_by_role("button", name="Forget token").click()
        box.wait_for()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_closed_question_for_a_token_is_asked_again_only_by_its_button(visit, settings):
    with serve_process(settings, tokens=TOKENS) as server:
        page = visit(server.url, ready=False)
        box = page.get_by_role("dialog", name="Token")
        box.wait_for()
        page.keyboard.press("Escape")
        box.wait_for(state="detached")
        go(page, "q", "queues")
        page.get_by_text("No token").wait_for()
        assert box.count() == 0
        page.get_by_role("button", name="Use a token").click()
        box.get_by_label("Token").fill(READ)
        page.keyboard.press("Enter")
        page.get_by_text("No queues yet.").wait_for()


@pytest.mark.parametrize(("token", "n"), [(READ, 0), (ADMIN, 1)])
def test_orders_and_the_audit_are_offered_to_the_role_admin(visit, settings, token, n):
    with serve_process(settings, tokens=TOKENS) as server:
        stock = Stock(server.url, ADMIN)
        job = stock.dead("t", "q", "Boom", "words")
        page = visit(server.url, "/failures", token=token, ready=False)
        with page.expect_response("**/whoami"):
            page.reload()
        page.locator("[aria-label=Failures] tbody tr").wait_for()
        if n:
            page.get_by_role("link", name="Audit").wait_for()
            page.get_by_role("button", name="Retry 1").wait_for()
        for name in ("Retry 1", "Erase 1"):
            assert page.get_by_role("button", name=name).count() == n, name
        assert page.get_by_role("link", name="Audit").count() == n
        page.goto(f"{server.url}/ui/jobs/{job}")
        page.get_by_role("button", name="Copy id").wait_for()
        if n:
            page.get_by_role("button", name="Erase").wait_for()
        assert page.get_by_role("button", name="Erase").count() == n


def test_a_token_that_has_lost_the_role_is_told_which_one_it_needs(visit, settings):
    with serve_process(settings, tokens=TOKENS) as server:
        stock = Stock(server.url, ADMIN)
        job = stock.submit("t", "q", delay=3600)
        page = visit(server.url, "/queues", token=READ)
        page.route("**/whoami", lambda route: route.fulfill(json={"name": "ada", "roles": ["admin"]}))
        page.goto(f"{server.url}/ui/jobs/{job}")
        page.get_by_role("button", name="Run now").click()
        page.get_by_text("use one with role admin").last.wait_for()
        assert stock.ask("GET", f"/jobs/{job}")["state"] == "scheduled"


def with_whoami(roles):
    """A server that tells a token's roles, and lists jobs by tag."""

    def answer(route):
        if route.request.url.endswith("/whoami"):
            return route.fulfill(json={"name": "ada", "roles": roles})
        document = route.fetch().json()
        document["paths"]["/whoami"] = {"get": {"security": []}}
        tag = {"name": "tag", "in": "query", "description": "Only jobs with this tag."}
        document["paths"]["/jobs"]["get"]["parameters"].append(tag)
        return route.fulfill(json=document)

    return answer


@pytest.mark.parametrize(("roles", "orders"), [(["read"], 0), (["admin"], 1)])
def test_a_view_offers_what_the_server_has_and_the_token_may(visit, site, roles, orders):
    page = visit(site.url, "/nonsense")
    page.route(re.compile("whoami|openapi"), with_whoami(roles))
    page.goto(f"{site.url}/ui/jobs/{site.stock.ids['dead']}")
    read(page)
    page.get_by_role("button", name="Copy id").wait_for()
    page.goto(f"{site.url}/ui/jobs")
    page.get_by_label("tag", exact=True).wait_for()  # by now the roles are read
    page.get_by_role("link", name="dead").click()
    page.locator(f"tr[data-key='{site.stock.ids['dead']}'] .open").click()
    page.get_by_role("button", name="Copy id").wait_for()
    assert page.get_by_role("button", name="Retry").count() == orders
    assert page.get_by_role("button", name="Edit and submit again").count() == orders


def test_a_server_that_cannot_stream_is_polled(visit, site):
    page = visit(site.url, "/queues", ready=False)
    page.route(
        "**/events", lambda route: route.fulfill(status=200, content_type="application/json", body="{}")
    )
    page.reload()
    page.wait_for_selector(".mark.polling")
    page.wait_for_selector("tr[data-key=mail]")
    site.stock.submit("t", "polled")
    page.wait_for_selector("tr[data-key=polled]")


def test_a_stream_that_was_refused_once_is_tried_again(visit, site):
    page = visit(site.url, "/nonsense", ready=False)
    page.goto("about:blank")
    page.clock.install()
    problem = {"type": "urn:sublet:problem:busy", "detail": "the server is overloaded"}
    page.route("**/events", lambda route: route.fulfill(status=503, json=problem), times=1)
    page.goto(f"{site.url}/ui/queues")
    page.wait_for_selector(".mark.polling")
    for _ in range(40):
        page.clock.run_for(1000)
        if page.locator(".mark.live").count():
            break
    page.wait_for_selector(".mark.live")


def test_a_page_is_live_again_after_one_lost_answer(visit, site):
    """The stream itself goes on: no end of it starts another."""
    page = visit(site.url, "/queues")
    page.wait_for_selector(".mark.live")
    page.route("**/queues?*", lambda route: route.abort(), times=1)
    site.stock.submit("t", "lost-answer")
    page.wait_for_selector(".mark.stale")
    page.wait_for_selector(".mark.live")
    page.wait_for_selector("tr[data-key=lost-answer]")


def test_a_page_that_is_hidden_and_shown_again_and_again_stays_live(visit, site):
    page = visit(site.url, "/queues")
    hide = "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
    changed = "document.dispatchEvent(new Event('visibilitychange'))"
    for _ in range(4):  # a stream that the page itself ends was not refused
        page.wait_for_selector(".mark.live")
        page.evaluate(hide + changed)
        page.wait_for_selector(".mark.paused")
        page.evaluate("delete document.hidden;" + changed)
    page.wait_for_selector(".mark.live")


def test_a_failed_read_is_repeated(visit, site):
    page = visit(site.url, "/jobs?queue=failing")
    page.wait_for_selector(".mark.live")
    problem = {"type": "urn:sublet:problem:unavailable", "detail": "Redis did not answer in time"}
    page.route(re.compile(r"/jobs\?.*limit="), lambda route: route.fulfill(status=503, json=problem), times=1)
    site.stock.submit("t", "failing")
    page.get_by_text("Redis did not answer in time").wait_for()
    page.get_by_role("alert").wait_for(state="detached")
    page.wait_for_selector("#jobs tbody tr")


@pytest.mark.parametrize(
    ("path", "last"), [("/jobs", ["/tasks?"]), ("", ["/metrics", "/history?"])], ids=["jobs", "overview"]
)
def test_a_hidden_page_reads_nothing(visit, site, path, last):
    page = visit(site.url, path)
    page.wait_for_selector(".mark.live")
    for part in last:  # it reads these after its first paint
        until_true(
            page, f"performance.getEntriesByType('resource').some(({{name}}) => name.includes('{part}'))"
        )
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_selector(".mark.paused")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    made = site.stock.submit("t", "hidden")
    page.wait_for_timeout(1500)  # a page that reads would do so within one
    assert asked == []
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector(".mark.live")
    if path:
        page.wait_for_selector(f"tr[data-key='{made}']")
    read(page)


HIDE = "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
CHANGED = "document.dispatchEvent(new Event('visibilitychange'));"


def test_a_read_that_was_due_when_the_page_was_hidden_is_not_made(visit, site):
    page = visit(site.url, "/schedules")
    page.wait_for_selector(".mark.live")
    page.wait_for_timeout(500)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(CHANGED + HIDE + CHANGED)  # the first asks for a read
    page.wait_for_timeout(4000)  # `rest` of this view is 3 s
    assert asked == []
    page.evaluate("delete document.hidden;" + CHANGED)
    page.wait_for_selector(".mark.live")
    assert any("/schedules" in url for url in asked)


def test_a_hidden_page_is_not_painted(visit, site):
    """The rest of a lease counts down each second."""
    page = visit(site.url, "/jobs?state=running")
    page.wait_for_selector(".mark.live")
    page.wait_for_selector("#jobs .lease")
    watch = (
        "window.painted = 0;"
        "new MutationObserver(() => { window.painted += 1; })"
        ".observe(document.getElementById('main'), {subtree: true, childList: true, characterData: true});"
    )
    page.evaluate(watch)
    until_true(page, "window.painted > 0")
    page.evaluate(HIDE + CHANGED)
    page.wait_for_timeout(600)  # a paint that was under way
    page.evaluate("window.painted = 0")
    page.wait_for_timeout(2500)
    assert page.evaluate("window.painted") == 0
    page.evaluate("delete document.hidden;" + CHANGED)
    until_true(page, "window.painted > 0")


def test_a_page_that_polls_goes_on_when_it_is_shown_again(visit, site):
    page = visit(site.url, "/nonsense", ready=False)
    polled = []

    def answer(route):
        if "text/event-stream" in route.request.headers["accept"]:
            return route.fulfill(status=200, content_type="application/json", body="{}")
        polled.append(route.request.url)
        return route.continue_()

    page.route("**/events*", answer)
    page.goto(f"{site.url}/ui/queues")
    for _ in range(3):
        page.wait_for_selector(".mark.polling")
        page.evaluate(HIDE + CHANGED)
        page.wait_for_selector(".mark.paused")
        page.wait_for_timeout(300)
        seen = len(polled)
        page.evaluate("delete document.hidden;" + CHANGED)
        page.wait_for_selector(".mark.polling")
        assert len(polled) > seen
    site.stock.submit("t", "polled-again")
    page.wait_for_selector("tr[data-key=polled-again]")


def test_a_view_that_the_token_may_not_see_says_so_with_the_servers_words(visit, settings):
    with serve_process(settings, tokens=TOKENS) as server:
        page = visit(server.url, "/audit", token=READ, ready=False)
        alert = page.get_by_role("alert")
        alert.get_by_text("This token may not read this page.").wait_for()
        assert "use one with role admin" in alert.inner_text()
        assert page.locator("main table").count() == 0
        page.goto(f"{server.url}/ui/queues")
        page.get_by_text("No queues yet.").wait_for()
        assert alert.count() == 0


def test_a_server_without_redis_makes_the_page_stale(visit, site):
    page = visit(site.url, "/queues")
    page.wait_for_selector(".mark.live")
    problem = '{"type": "urn:sublet:problem:unavailable", "detail": "Redis does not answer."}'
    page.route("**/queues?*", lambda route: route.fulfill(status=503, body=problem))
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Queues").click()
    page.locator(".mark.stale", has_text="Stale since").wait_for()
    page.locator("main.stale").wait_for()  # the last state is grey
    page.unroute("**/queues?*")
    page.locator(".mark.live").wait_for()


def test_a_token_that_may_only_submit_gets_one_message(visit, settings):
    with serve_process(settings, tokens=f"{TOKENS} ci:submit:{SUBMIT}") as server:
        page = visit(server.url, token=SUBMIT, ready=False)
        page.get_by_role("alert").get_by_text("This token may not read this page.").wait_for()
        assert "use one with role admin or metrics or read" in page.get_by_role("alert").inner_text()
        assert page.locator("#views a, .mark, .note").count() == 0
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_timeout(6000)  # a failed read is repeated after 5 s
        assert asked == []
        page.get_by_role("button", name="Use another token").click()
        page.locator("[name=token]").fill(READ)
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Jobs", exact=True).wait_for()
        page.wait_for_selector(".mark.live")


def test_a_token_limited_to_queues_reads_that_workers_are_hidden(visit, settings):
    with serve_process(settings, tokens=f"{TOKENS} shop:read@mail:{SUBMIT}") as server:
        stock = Stock(server.url, ADMIN)
        stock.ask("PUT", "/workers/mill", {"life": "1", "about": {}})
        stock.ask("GET", "/tick")
        page = visit(server.url, token=SUBMIT)
        health = page.locator(".health")
        health.get_by_text("by a hidden worker or tick").wait_for()
        health.get_by_text("hidden from a token that is limited to queues").wait_for()
        page.goto(f"{server.url}/ui/workers")
        page.get_by_text("Workers of this token only").wait_for()
