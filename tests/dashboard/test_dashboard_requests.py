"""The page asks for nothing that its token may not read."""

import pytest

from tests.support.draws import one_in
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser"]
ADMIN, READ, MAIL, SUBMIT, CHARTS = (
    f"a-secret-of-{name}-0123456789" for name in ("admin", "read", "mail", "ci", "charts")
)
TOKENS = f"boss:admin:{ADMIN} ada:read:{READ} post:admin@mail:{MAIL} ci:submit:{SUBMIT} graf:metrics:{CHARTS}"
VIEWS = ("", "/jobs", "/failures", "/queues", "/schedules", "/workers", "/audit", "/nonsense")


@pytest.fixture(scope="module")
def guarded(site):
    with serve_process(site.settings, tokens=TOKENS) as server:
        yield server


def refused(page):
    """Note the answers that are errors."""
    found = []
    page.on("response", lambda answer: answer.status >= 400 and found.append(f"{answer.status} {answer.url}"))
    return found


SECRETS = {"admin": ADMIN, "read": READ, "mail": MAIL, "submit": SUBMIT, "metrics": CHARTS}


@pytest.mark.parametrize("token", [pytest.param(SECRETS[name], id=name) for name in one_in(3, [*SECRETS])])
def test_no_request_of_a_view_is_refused(visit, site, guarded, token):
    page = visit(guarded.url, "/nonsense", token=token)
    found = refused(page)
    for path in (*VIEWS, "/queues/mail", f"/jobs/{site.stock.ids['queued']}")[
        : 8 if token == CHARTS else None
    ]:
        page.goto(f"{guarded.url}/ui{path}")
        page.wait_for_load_state("networkidle") if token == SUBMIT else page.wait_for_timeout(700)
    assert found == []


def test_a_server_that_needs_a_token_is_asked_once_without_one(visit, guarded):
    page = visit(guarded.url, "/nonsense", ready=False)
    page.goto("about:blank")
    found = refused(page)
    page.goto(f"{guarded.url}/ui/jobs")
    page.get_by_role("dialog", name="Token").wait_for()
    page.wait_for_timeout(500)
    assert found == [f"401 {guarded.url}/whoami"]


@pytest.mark.parametrize(
    ("text", "place"),
    [("mail", "jobs?queue=mail"), ("import", "jobs?tag=import"), ("send_mail", "jobs?task=send_mail")],
)
def test_a_name_is_found_without_a_request_for_a_job_that_is_not_there(visit, site, text, place):
    page = visit(site.url, "/queues")
    found = refused(page)
    page.get_by_role("searchbox").fill(text)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/{place}")
    assert found == []


def test_the_search_says_what_it_finds(visit, site):
    page = visit(site.url, "/queues")
    box = page.get_by_role("searchbox")
    assert box.get_attribute("placeholder") == "Whole id, queue, tag, task"
    job = site.stock.ids["queued"]
    for text in (job, job.partition("-")[2]):
        box.fill(text)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/ui/jobs/{job}")
        page.goto(f"{site.url}/ui/queues")


def test_a_token_for_some_queues_reads_how_many_jobs_died(visit, site, guarded):
    stock = site.stock
    stock.dead("t", "mail-dead", "Boom", "words")
    page = visit(guarded.url, token=MAIL)
    tile = page.locator(".tile.dead")
    tile.get_by_text("died").wait_for()
    assert tile.locator("b").inner_text() == "0"
    assert tile.get_attribute("href").endswith("/failures")
