"""The stream of a job on its page: the last chunks of what its task emits."""

from tests.support.dashboard_jobs import HOSTILE, Stock
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]
READ, ADMIN = "a-secret-of-the-reader-01", "a-secret-of-the-boss-0123"


def emit(site, lease, *chunks):
    site.stock.ask("POST", f"/jobs/{lease['id']}/emit", {"token": lease["token"], "chunks": list(chunks)})


def text_of(page):
    return page.locator(".tail pre").inner_text()


def test_the_page_of_a_job_follows_what_its_task_emits(visit, site):
    lease = site.stock.held("chat", "chats")
    page = visit(site.url, f"/jobs/{lease['id']}")
    page.wait_for_selector(".mark.live")
    assert page.locator(".tail").count() == 0
    emit(site, lease, "Once ", "upon ", {"tokens": 2})
    page.locator(".tail", has_text="Once upon").wait_for()
    assert text_of(page).split("\n")[:2] == ["Once upon ", '{"tokens":2}']
    emit(site, lease, "a time")
    page.locator(".tail", has_text="a time").wait_for()
    emit(site, lease, "the end")
    site.stock.settle(lease, "complete", result=None)
    page.locator(".title .badge.completed").wait_for()
    page.locator(".tail", has_text="the end").wait_for()
    requests = []
    page.on("request", lambda one: requests.append(one.url) if "/stream?" in one.url else None)
    page.reload()
    page.locator(".tail", has_text="the end").wait_for()
    for _ in range(2):
        with page.expect_response(lambda answer: answer.url.endswith(f"/jobs/{lease['id']}")):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it reads again
    assert len(requests) == 1, "of an ended job it is read once"


def test_a_page_that_is_left_does_not_follow_the_stream(visit, site):
    lease = site.stock.held("chat", "left-chats")
    emit(site, lease, "Once ")
    page = visit(site.url, f"/jobs/{lease['id']}")
    page.locator(".tail").wait_for()
    with page.expect_request(lambda one: "/stream?after=" in one.url):
        pass
    requests = []
    page.on("request", lambda one: requests.append(one.url) if "/stream?" in one.url else None)
    page.get_by_role("link", name="Workers").click()
    page.locator("h1", has_text="Workers").wait_for()
    before = len(requests)
    emit(site, lease, "upon ")  # ends the read that is under way
    page.wait_for_timeout(1500)  # three times the pause between two reads
    assert len(requests) == before


def test_a_stream_is_text_of_a_bounded_length(visit, site):
    lease = site.stock.held("evil", "evil-chats")
    emit(site, lease, *(f"{n} " for n in range(90)))
    emit(site, lease, *HOSTILE.values(), HOSTILE)
    page = visit(site.url, f"/jobs/{lease['id']}")
    page.get_by_text("The last 50 chunks.").wait_for()
    shown = text_of(page)
    assert HOSTILE["markup"] in shown
    assert "\\u202e" in shown
    assert "\x1b" not in shown
    assert shown.split(" ")[0] == "45"
    assert page.locator(".tail *").count() == 1
    emit(site, lease, "x" * 60_000)
    page.locator(".tail", has_text="xxxx").wait_for()
    assert len(text_of(page)) <= 16_385
    assert page.get_by_text("The last 50 chunks.").count() == 1


def test_the_chunks_of_each_attempt_are_told_apart(visit, site):
    lease = site.stock.held("chat", "again-chats")
    emit(site, lease, "first")
    site.stock.settle(lease, "release")
    claim = {"queues": ["again-chats"], "worker": "w", "lease": 600}
    (again,) = site.stock.ask("POST", "/jobs/claim", claim)["jobs"]
    emit(site, again, "second")
    page = visit(site.url, f"/jobs/{lease['id']}")
    page.locator(".tail", has_text="second").wait_for()
    assert text_of(page).split("\n") == ["first", "— attempt 2 —", "second"]


def test_a_token_without_payloads_sees_no_stream(visit, settings):
    with serve_process(settings, tokens=f"ada:read:{READ} boss:admin:{ADMIN}") as server:
        stock = Stock(server.url, ADMIN)
        lease = stock.held("chat", "hidden-chats")
        stock.ask("POST", f"/jobs/{lease['id']}/emit", {"token": lease["token"], "chunks": ["secret"]})
        page = visit(server.url, f"/jobs/{lease['id']}", token=READ)
        page.get_by_text("Not shown to this token").first.wait_for()
        requests = []
        page.on("request", lambda one: requests.append(one.url) if "/stream?" in one.url else None)
        page.reload()
        page.get_by_text("Not shown to this token").first.wait_for()
        assert (requests, page.locator(".tail").count()) == ([], 0)
        page = visit(server.url, f"/jobs/{lease['id']}", token=ADMIN)
        page.locator(".tail", has_text="secret").wait_for()
