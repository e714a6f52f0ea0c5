"""The page of a workflow, and the upstream jobs on the page of a job."""

import re
from datetime import UTC, datetime, timedelta

import pytest
import redis

from sublet.protocol import keys
from tests.support.dashboard_flows import diamond, fan_out, stored, work
from tests.support.dashboard_jobs import Stock
from tests.support.dashboard_pages import columns, read
from tests.support.http_server import serve_process
from tests.support.processes import until

pytest_plugins = ["tests.support.browser", "tests.support.http_settings"]

READ, ADMIN = "a-secret-of-the-reader-01", "a-secret-of-the-boss-0123"
TOKENS = f"ada:read:{READ} boss:admin:{ADMIN}"
NAME = "<img/src=x/onerror=alert(1)>\u202e\x1b[31m"


def node(page, text):
    return page.locator(".canvas li", has_text=text)


def states(page):
    """The task and the state of each node of one job."""
    nodes = page.locator("a.node").all()
    return {one.locator("b").inner_text(): one.locator(".badge").inner_text() for one in nodes}


def legend(page):
    """The parts of a workflow's bar, in words."""
    return [one.strip() for one in page.locator(".legend li").all_inner_texts()]


def flow_of(site, made, query=""):
    return site.stock.ask("GET", f"/workflows/{made['flow']}{query}")


def test_the_jobs_are_drawn_from_left_to_right_and_lead_to_their_pages(visit, site):
    made = diamond(site.stock, "drawn")
    work(site.stock, "drawn", 1)
    page = visit(site.url, f"/workflows/{made['flow']}")
    assert "1 of 4 jobs has" not in page.locator("main").inner_text()
    page.get_by_text("1 of 4 jobs have ended").wait_for()
    assert states(page) == {"start": "completed", "left": "queued", "right": "queued", "join": "scheduled"}
    places = [node(page, task).bounding_box()["x"] for task in ("start", "left", "right", "join")]
    assert places[0] < places[1] == places[2] < places[3]
    assert page.locator(".edge").count() == 4
    assert "waits for 2 jobs" in node(page, "join").inner_text()
    assert legend(page) == ["1 completed", "2 queued", "1 scheduled"]
    node(page, "join").get_by_role("link").click()
    page.wait_for_url(f"**/ui/jobs/{made['join']}")
    page.get_by_role("link", name=made["flow"]).click()
    page.wait_for_url(f"**/ui/workflows/{made['flow']}?job={made['join']}")
    page.wait_for_selector(".here a.node")
    assert made["join"] in page.locator(".here").inner_text()


def test_a_table_has_the_same_as_the_graph(visit, site):
    made = fan_out(site.stock, "tabled", 20)
    page = visit(site.url, f"/workflows/{made['flow']}")
    page.get_by_text("The graph as a table").click()
    region = "[aria-label='Jobs of the graph']"
    names = [name.split("\n")[0] for name in columns(page, region, 0)]
    rows = list(zip(names, columns(page, region, 1), columns(page, region, 3), strict=True))
    assert rows == [
        ("fetch × 20", "1", "–"),
        ("index", "2", "20 jobs: fetch × 20"),
        ("publish", "3", "1 job: index"),
    ]
    assert columns(page, region, 2) == ["20 queued", "scheduled", "scheduled"]


def test_the_graph_follows_its_jobs(visit, site):
    made = diamond(site.stock, "followed")
    page = visit(site.url, f"/workflows/{made['flow']}")
    page.wait_for_selector(".mark.live")
    work(site.stock, "followed", 3)
    node(page, "join").get_by_text("queued").wait_for()
    page.get_by_text("3 of 4 jobs have ended").wait_for()
    work(site.stock, "followed", 1, failing=1)
    node(page, "join").get_by_text("TimeoutError").wait_for()
    page.locator(".title .badge", has_text="ended").wait_for()
    assert states(page)["join"] == "dead"


def test_the_error_of_a_job_that_is_tried_again_is_of_the_past(visit, site):
    made = diamond(site.stock, "again")
    claim = {"queues": ["again"], "worker": "mill-7", "lease": 600}
    (lease,) = site.stock.ask("POST", "/jobs/claim", claim)["jobs"]
    failure = {
        "id": lease["id"],
        "token": lease["token"],
        "code": "TimeoutError",
        "message": "no answer",
        "again": True,
    }
    site.stock.ask("POST", "/jobs/fail", {"jobs": [failure]})
    page = visit(site.url, f"/workflows/{made['flow']}")
    assert node(page, "start").locator(".told").inner_text().split() == ["scheduled", "after", "TimeoutError"]


def test_alike_jobs_are_one_node_that_counts_them_and_a_held_one_says_so(visit, site):
    made = fan_out(site.stock, "folded", 200, on_failure="hold")
    work(site.stock, "folded", 200, failing=2)
    page = visit(site.url, f"/workflows/{made['flow']}")
    page.wait_for_selector(".node.fold")
    node(page, "fetch").get_by_text("2 dead").wait_for()
    assert page.locator(".node").count() == 3
    text = node(page, "fetch").inner_text()
    assert re.sub(r"\s+", " ", text) == "fetch × 200 2 dead 198 completed"
    assert node(page, "index").locator(".told").inner_text().split() == ["held", "until", "a", "retry"]
    node(page, "fetch").get_by_role("link", name="2 dead").click()
    page.wait_for_url(f"**/ui/jobs?workflow={made['flow']}&task=fetch&state=dead")
    read(page)
    page.wait_for_selector("#jobs tbody tr:nth-child(2)")
    assert set(columns(page, "#jobs", 2)) == {"dead"}


def test_a_workflow_of_which_all_waits_for_a_retry_is_held(visit, site):
    made = fan_out(site.stock, "standing", 3, on_failure="hold")
    page = visit(site.url, f"/workflows/{made['flow']}")
    state = page.locator(".title .badge")
    state.get_by_text("waits for a worker").wait_for()
    work(site.stock, "standing", 3, failing=2)
    state.get_by_text("held", exact=True).wait_for()
    both = site.stock.ask("GET", "/jobs?queue=standing&state=dead")["jobs"]
    note = page.locator(".note", has_text="Held: 1 job waits for the retry of ")
    assert sorted(note.get_by_role("link").all_inner_texts()) == sorted(one["id"] for one in both)
    site.stock.ask("POST", f"/jobs/{both[0]['id']}/retry")
    state.get_by_text("waits for a worker").wait_for()
    work(site.stock, "standing", 1)
    state.get_by_text("held", exact=True).wait_for()
    (failed,) = site.stock.ask("GET", "/jobs?queue=standing&state=dead")["jobs"]
    note = f"Held: 1 job waits for the retry of {failed['id']}."
    page.locator(".note").get_by_text(note).wait_for()
    assert legend(page) == ["2 completed", "1 scheduled", "1 held", "1 dead"]
    page.get_by_text("The graph as a table").click()
    region = "[aria-label='Jobs of the graph']"
    named = zip(columns(page, region, 0), columns(page, region, 2), strict=True)
    assert {name.split("\n")[0]: state for name, state in named}["index"] == "held"
    page.locator(".legend").get_by_role("link", name="1 held").click()
    page.wait_for_url(f"**/ui/jobs?workflow={made['flow']}&state=scheduled")
    page.go_back()
    site.stock.ask("POST", f"/jobs/{failed['id']}/retry")
    state.get_by_text("waits for a worker").wait_for()
    page.locator(".note").wait_for(state="detached")
    assert legend(page) == ["2 completed", "1 queued", "2 scheduled"]


def test_a_workflow_whose_jobs_wait_for_signals_or_a_time_says_so(visit, site):
    job = {"task": "t", "queue": "approvals"}
    made = stored(site.stock, [job | {"name": "a"}, job | {"name": "b"}, job | {"name": "c", "after": ["a"]}])
    leases = site.stock.ask("POST", "/jobs/claim", {"queues": ["approvals"], "worker": "w", "n": 2})["jobs"]
    page = visit(site.url, f"/workflows/{made['flow']}")
    state = page.locator(".title .badge")
    state.get_by_text("runs", exact=True).wait_for()
    site.stock.settle(leases[0], "suspend", kind="sleep", name="rest", delay=3600)
    site.stock.settle(leases[1], "suspend", kind="signal", name="approval")
    state.get_by_text("waits for a signal").wait_for()
    note = f"1 job waits for signal approval: {leases[1]['id']}."
    page.locator(".note").get_by_text(note).wait_for()
    site.stock.ask("POST", f"/jobs/{leases[1]['id']}/cancel")
    state.get_by_text("waits for a time").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_part_of_the_bar_has_the_colour_of_its_word(visit, site, scheme):
    made = fan_out(site.stock, f"colours-{scheme}", 9, on_failure="hold")
    work(site.stock, f"colours-{scheme}", 3, failing=1)
    site.stock.ask("POST", f"/jobs/{made['fetch8']}/cancel")
    claim = {"queues": [f"colours-{scheme}"], "worker": "w", "lease": 600}
    site.stock.ask("POST", "/jobs/claim", claim)
    page = visit(site.url, f"/workflows/{made['flow']}", scheme=scheme)
    page.locator(".legend").wait_for()
    words = [text.split(" ")[1] for text in legend(page)]
    assert set(words) == {"completed", "running", "queued", "scheduled", "held", "cancelled", "dead"}
    of = "(all, name) => all.map((one) => getComputedStyle(one)[name])"
    colours = page.eval_on_selector_all(".parts.full i", of, "backgroundColor")
    assert colours == page.eval_on_selector_all(".legend .badge", of, "color")
    assert len(set(colours)) == len(words)


def asked(page, flow):
    """The addresses of the requests for a workflow, from now on."""
    found = []
    page.on("request", lambda one: found.append(one.url) if f"/workflows/{flow}" in one.url else None)
    return found


def test_of_a_large_workflow_the_first_thousand_jobs_are_read_and_the_failed_ones(visit, site):
    made = fan_out(site.stock, "large", 1300, on_failure="run")
    work(site.stock, "large", 3, failing=3)
    page = visit(site.url, "/jobs")
    requests = asked(page, made["flow"])
    page.goto(f"{site.url}/ui/workflows/{made['flow']}")
    page.get_by_text(re.compile(r"1,00\d of 1,302 jobs are drawn")).wait_for()
    assert "3 dead" in node(page, "fetch").inner_text(), "they are read first"
    assert 5 <= len(requests) <= 8, "pages of 200, then counts"
    page.get_by_role("button", name="Read all 1,302").click()
    page.get_by_text("jobs are drawn").wait_for(state="detached")
    node(page, "fetch × 1,300").wait_for()
    node(page, "publish").wait_for()
    before = len(requests)
    page.wait_for_selector(".mark.live")
    work(site.stock, "large", 40)
    node(page, "fetch × 1,300").get_by_role("link", name="40 completed").wait_for()
    later = requests[before:]
    assert all("limit=1" in url and "limit=1&" not in url.replace("&cursor=", "") for url in later), (
        "counts only"
    )


def test_a_page_that_is_left_reads_no_more_of_the_workflow(visit, site):
    made = fan_out(site.stock, "left", 700)
    page = visit(site.url, "/jobs")
    requests = asked(page, made["flow"])
    held = []
    page.route("**/workflows/*cursor=*", lambda route: held.append(route))
    page.goto(f"{site.url}/ui/workflows/{made['flow']}")
    page.get_by_text("Reading: 200 of 702 jobs…").wait_for()
    until(lambda: held, "the second page is asked for")
    page.get_by_role("link", name="Queues").click()
    read(page)
    n = len(requests)
    held[0].continue_()
    page.get_by_role("link", name="Workers").click()
    read(page)
    assert len(requests) == n


def test_a_workflow_is_cancelled_and_retried(visit, site):
    made = diamond(site.stock, "ordered")
    site.stock.ask("POST", "/jobs/claim", {"queues": ["ordered"], "worker": "mill-7", "lease": 600})
    page = visit(site.url, f"/workflows/{made['flow']}")
    button = page.get_by_role("button", name="Cancel", exact=True)
    button.click()
    box = page.get_by_role("dialog", name="Cancel this workflow?")
    assert "4 jobs have not ended" in box.inner_text()
    box.get_by_role("button", name="Keep as it is").click()
    box.wait_for(state="detached")
    assert flow_of(site, made)["unfinished"] == 4
    button.click()
    page.get_by_role("button", name="Cancel the workflow").click()
    toast = page.locator("#toast")
    toast.wait_for()
    assert toast.inner_text().startswith("Cancel: ")
    assert "1 asked to stop" in toast.inner_text()
    seen = flow_of(site, made)
    assert (seen["unfinished"], seen["cancelled"]) == (1, 3)
    node(page, "join").get_by_text("cancelled").wait_for()
    page.get_by_role("button", name="Retry", exact=True).click()
    box = page.get_by_role("dialog", name="Retry this workflow?")
    assert "0 dead and 3 cancelled jobs" in box.inner_text()
    box.get_by_role("button", name="Retry the workflow").click()
    page.locator("#toast", has_text="Retry: ").wait_for()
    node(page, "join").get_by_text("scheduled").wait_for()
    assert flow_of(site, made)["unfinished"] == 4
    page.get_by_role("button", name="Retry", exact=True).wait_for(state="detached")


def test_jobs_that_are_cancelled_with_the_job_that_they_wait_for_are_told_as_such(visit, site):
    job = {"task": "t", "queue": "cascade"}
    first = job | {"id": "0-cascade-1", "name": "first"}
    made = stored(site.stock, [first, *(job | {"id": f"0-cascade-{n}", "after": ["first"]} for n in (2, 3))])
    page = visit(site.url, f"/workflows/{made['flow']}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the workflow").click()
    toast = "Cancel: 1 cancelled, 2 cancelled with the job that they wait for."
    page.locator("#toast", has_text=toast).wait_for()


def test_an_order_goes_on_until_no_cursor_is_left_and_says_where_it_stopped(visit, site):
    made = diamond(site.stock, "paged")
    page = visit(site.url, f"/workflows/{made['flow']}")
    bodies = []

    def answer(route):
        bodies.append(route.request.post_data_json)
        if len(bodies) == 3:
            route.fulfill(status=409, json={"type": "urn:sublet:problem:conflict", "detail": "not now"})
        else:
            ordered = {"outcomes": {"cancelled": 200}, "refused": 0, "cursor": f"c{len(bodies)}"}
            route.fulfill(json={"id": made["flow"], **ordered})

    page.route("**/workflows/*/cancel", answer)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the workflow").click()
    page.locator("#toast.bad", has_text="Cancel: 400 cancelled. Then it stopped: not now").wait_for()
    assert [body["cursor"] for body in bodies] == [None, "c1", "c2"]


def test_a_reader_sees_the_workflow_without_orders(visit, settings):
    with serve_process(settings, tokens=TOKENS) as server:
        made = diamond(Stock(server.url, ADMIN), "guarded")
        page = visit(server.url, f"/workflows/{made['flow']}", token=READ)
        node(page, "join").wait_for()
        page.get_by_role("button", name="Copy id").wait_for()
        page.get_by_role("link", name="Audit").wait_for(state="detached")
        assert page.locator(".orders button").all_inner_texts() == ["Copy id"]
        page = visit(server.url, f"/workflows/{made['flow']}", token=ADMIN)
        page.get_by_role("button", name="Cancel", exact=True).wait_for()


def test_a_job_says_for_how_many_it_waits_and_leads_to_them(visit, site):
    made = diamond(site.stock, "awaited")
    work(site.stock, "awaited", 2)
    page = visit(site.url, f"/jobs/{made['join']}")
    page.locator(".note").get_by_text("It waits for 1 of 2 jobs.").wait_for()
    region = "[aria-label='Jobs that it waits for, or waited for']"
    assert sorted(columns(page, region, 2)) == ["completed", "queued"]
    page.wait_for_selector(".mark.live")
    work(site.stock, "awaited", 1, failing=1)
    page.locator(region).get_by_text("TimeoutError").wait_for()
    page.locator(".title .badge.cancelled").wait_for()
    page.locator(region).get_by_role("link", name="left").click()
    page.wait_for_url(f"**/ui/jobs/{made['left']}")
    read(page)
    assert columns(page, region, 0)[0].startswith("start")


def test_a_job_shows_twenty_of_many_that_it_waits_for(visit, site):
    made = fan_out(site.stock, "many-awaited", 30)
    page = visit(site.url, f"/jobs/{made['index']}")
    page.get_by_text("20 of 30 are shown.").wait_for()
    page.locator(".note").get_by_text("It waits for 30 jobs.").wait_for()
    region = "[aria-label='Jobs that it waits for, or waited for']"
    assert len(columns(page, region, 0)) == 20
    page.get_by_role("button", name="Show all 30").click()
    page.get_by_text("20 of 30 are shown.").wait_for(state="detached")
    assert len(set(columns(page, region, 0))) == 30
    page = visit(site.url, f"/jobs/{made['fetch3']}")
    page.get_by_role("link", name=made["flow"]).wait_for()
    assert page.get_by_role("heading", name="Upstream jobs").count() == 0


def test_of_very_many_upstream_jobs_a_thousand_are_shown_with_a_link_to_all(visit, site):
    made = fan_out(site.stock, "most-awaited", 1010)
    page = visit(site.url, f"/jobs/{made['index']}")
    page.get_by_role("button", name="Show 1,000").click()
    page.get_by_text("1,000 of 1,010 are shown.").wait_for()
    assert len(columns(page, "[aria-label='Jobs that it waits for, or waited for']", 0)) == 1000
    page.get_by_role("link", name="All jobs of the workflow").click()
    page.wait_for_url(f"**/ui/jobs?workflow={made['flow']}")


def test_a_held_job_names_all_that_failed_and_shows_them_first(visit, site):
    made = fan_out(site.stock, "named", 30, on_failure="hold")
    work(site.stock, "named", 30, failing=7)
    page = visit(site.url, f"/jobs/{made['index']}")
    note = page.locator(".note", has_text="It is held: waits for the retry of ")
    note.get_by_text(" and 2 more").wait_for()
    named = note.get_by_role("link").all_inner_texts()
    region = "[aria-label='Jobs that it waits for, or waited for']"
    assert columns(page, region, 2) == ["dead"] * 7 + ["completed"] * 13
    failed = [cell.split("\n")[-1] for cell in columns(page, region, 0)[:7]]
    assert (named, len(set(failed))) == (failed[:5], 7)
    site.stock.ask("POST", f"/jobs/{failed[0]}/retry")
    note.get_by_text(" and 1 more").wait_for()
    assert failed[0] not in note.inner_text()


def changed(**values):
    """Answer a request with an object that has these values."""

    def answer(route):
        reply = route.fetch()
        route.fulfill(response=reply, json=reply.json() | values)

    return answer


def test_a_held_job_is_drawn_as_held_from_the_end_of_the_job_that_failed(visit, site):
    made = fan_out(site.stock, "since", 2, on_failure="hold")
    work(site.stock, "since", 2, failing=2)
    path, now = f"/jobs/{made['index']}", datetime.now(UTC)
    hour, first, second = (now - timedelta(minutes=n) for n in (60, 20, 10))
    jobs = site.stock.ask("GET", f"{path}/upstream")["upstream"]
    ended = [job | {"finished_at": at.isoformat()} for job, at in zip(jobs, (second, first), strict=True)]
    page = visit(site.url, "/jobs")
    page.route(re.compile(f"(?<!/ui){path}$"), changed(submitted_at=hour.isoformat()))
    page.route(f"**{path}/upstream*", changed(upstream=ended))
    page.goto(f"{site.url}/ui{path}")
    region = "[aria-label='Life of the job']"
    assert columns(page, region, 0) == ["waited for jobs", "held: waits for a retry"]
    assert [took.split(" ")[:2] for took in columns(page, region, 1)] == [["40", "min"], ["20", "min"]]
    page.route(f"**{path}/upstream*", lambda route: route.fulfill(status=403, json={}))
    page.reload()
    assert columns(page, region, 0) == ["waited for jobs, then held"]
    page.locator(".note").get_by_role("link").wait_for()
    assert "and perhaps others" in page.locator(".note").first.inner_text()


def test_a_search_finds_a_workflow_by_its_id(visit, site):
    made = diamond(site.stock, "sought")
    page = visit(site.url)
    page.keyboard.press("/")
    page.keyboard.type(made["flow"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/workflows/{made['flow']}")
    node(page, "start").wait_for()


def test_one_that_is_not_stored_and_one_that_is_not_whole_say_so(visit, site):
    page = visit(site.url, "/workflows/0-nothing")
    assert "Not found" in page.get_by_role("alert").inner_text()
    made = diamond(site.stock, "open")
    page = visit(site.url, "/jobs")
    body = flow_of(site, made) | {"state": "open"}
    page.route(f"**/workflows/{made['flow']}?*", lambda route: route.fulfill(json=body))
    page.goto(f"{site.url}/ui/workflows/{made['flow']}")
    page.get_by_text("More of its jobs are being stored").wait_for()
    page.locator(".title .badge", has_text="being stored").wait_for()


def test_deleted_jobs_are_counted_and_not_drawn(visit, site):
    made = diamond(site.stock, "deleted")
    work(site.stock, "deleted", 1)
    with redis.Redis.from_url(site.settings.redis_url) as raw:
        raw.delete(keys.job(keys.base(site.settings.namespace), made["start"]))
    page = visit(site.url, f"/workflows/{made['flow']}")
    page.get_by_text("3 of 4 jobs are drawn. The others have been deleted").wait_for()
    assert states(page).keys() == {"left", "right", "join"}


def test_nodes_are_reached_with_the_keyboard_and_a_phone_scrolls_the_graph_alone(visit, site):
    made = diamond(site.stock, "keyed")
    page = visit(site.url, f"/workflows/{made['flow']}", width=360, scheme="dark")
    node(page, "join").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".graph").evaluate("(one) => one.scrollWidth > one.clientWidth")
    page.locator(".graph").focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    assert "join" in page.evaluate("document.activeElement.innerText")
    box = node(page, "join").bounding_box()
    assert 0 <= box["x"] <= 360, "it is scrolled into sight"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{made['join']}")


def test_hostile_names_are_text(visit, site):
    made = stored(
        site.stock,
        [
            {"name": "a", "task": "evil", "queue": "evil"},
            {"name": "b", "task": "t", "queue": "evil", "after": ["a"]},
        ],
    )
    with redis.Redis.from_url(site.settings.redis_url) as raw:
        key = keys.job(keys.base(site.settings.namespace), made["a"])
        raw.hset(key, "spec", raw.hget(key, "spec").replace(b"evil evil", f"{NAME} {NAME}".encode()))
    for path in (f"/workflows/{made['flow']}", f"/jobs/{made['b']}"):
        page = visit(site.url, path)
        page.get_by_text("<img/src=x/onerror=alert(1)>").first.wait_for()
        text = page.locator("main").inner_text()
        assert r"\u202e\u001b[31m" in text
        assert page.evaluate("document.scripts.length === 1 && !document.querySelector('main img')")
