"""Orders that concern many jobs or take a form: counted first, refused in words, and the input is kept."""

import re
import threading

import pytest

from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.browser"]

READ, ADMIN = "a-secret-of-the-reader-01", "a-secret-of-the-boss-0123"
TOKENS = f"ada:read:{READ} boss:admin:{ADMIN}"


def waiting(site, queue, n):
    site.stock.ask("POST", "/jobs/batch", {"jobs": [{"task": "t", "queue": queue} for _ in range(n)]})


def states(site, queue):
    jobs = site.stock.ask("GET", f"/jobs?queue={queue}&limit=200")["jobs"]
    return sorted(job["state"] for job in jobs)


def row_of(page, queue):
    row = page.locator(f"tr[data-key='{queue}']")
    row.wait_for()
    return row


def test_a_queue_is_purged_by_the_keyboard_in_pages_and_the_audit_has_it(visit, site):
    waiting(site, "emptied", 230)
    site.stock.submit("t", "emptied", delay=3600)
    page = visit(site.url, "/queues")
    button = row_of(page, "emptied").get_by_role("button", name="Purge 230: emptied")
    button.focus()
    page.keyboard.press("Enter")
    box = page.get_by_role("dialog", name="Purge queue emptied?")
    box.get_by_text("230 jobs found.").wait_for()
    page.keyboard.press("Enter")  # the focus is on the button
    box = page.get_by_role("dialog", name="Purge: done")
    box.get_by_text("Done: 230 jobs cancelled.").wait_for()
    bar = box.get_by_role("progressbar")
    assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("230", "230")
    page.keyboard.press("Enter")
    box.wait_for(state="detached")
    row_of(page, "emptied").get_by_role("button", name="Purge").wait_for(state="detached")
    numbers = site.stock.ask("GET", "/queues/emptied")
    assert (numbers["queued"], numbers["jobs"]) == (0, 1), "the scheduled one stays"
    entries = site.stock.ask("GET", "/audit?limit=2")["entries"]
    named = [(one["verb"], one["queue"], one["outcome"]) for one in entries]
    assert named.count(("cancel", "emptied", "cancelled 230 of 230")) == 1
    assert [queue for _, queue, _ in named].count("emptied") == 1


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            [{"status": 200}, {"status": 200}, {"status": 409, "type": "urn:sublet:problem:changed", "detail": "it has changed"}],
            "Done: 2 of 3 jobs cancelled, 1 was changed by others.",
        ),
        (
            [{"status": 200, "state": state} for state in ("cancelled", "cascaded", "cascaded")],
            "1 of 3 jobs cancelled, 2 cancelled with the job that they wait for.",
        ),
    ],
    ids=["claimed meanwhile", "cascaded"],
)  # fmt: skip
def test_jobs_that_an_order_does_not_cancel_itself_are_told_apart(visit, site, answers, told):
    queue = f"apart-{len(told)}"
    waiting(site, queue, 3)
    page = visit(site.url, "/queues")
    row_of(page, queue).get_by_role("button", name=f"Purge 3: {queue}").click()
    box = page.get_by_role("dialog")
    box.get_by_text("3 jobs found.").wait_for()
    jobs = [{"id": f"0-{number}", **answer} for number, answer in enumerate(answers)]
    page.route("**/jobs/cancel", lambda route: route.fulfill(json={"found": 3, "jobs": jobs, "cursor": None}))
    box.get_by_role("button", name="Purge 3").click()
    box.get_by_text(told).wait_for()


def test_jobs_that_left_the_filter_after_the_count_are_counted_as_changed(visit, site):
    first, *_ = [site.stock.dead("t", "fewer", "Boom", "words") for _ in range(3)]
    page = visit(site.url, "/failures?queue=fewer")
    page.get_by_role("button", name="Retry 3").click()
    box = page.get_by_role("dialog")
    box.get_by_text("3 jobs found.").wait_for()
    site.stock.ask("POST", f"/jobs/{first}/retry")
    box.get_by_role("button", name="Retry 3").click()
    box.get_by_text("Done: 2 of 3 jobs queued again, 1 was changed by others.").wait_for()


@pytest.mark.parametrize("by", ["Stop", "Escape"])
def test_an_order_that_is_stopped_says_what_was_done(visit, site, by):
    queue, held = f"halted-{by}", []
    waiting(site, queue, 450)
    page = visit(site.url, "/queues")
    row_of(page, queue).get_by_role("button", name=f"Purge 450: {queue}").click()
    box = page.get_by_role("dialog")
    box.get_by_text("450 jobs found.").wait_for()
    page.route("**/jobs/cancel", lambda route: held.append(route), times=1)
    box.get_by_role("button", name="Purge 450").click()
    while not held:
        page.wait_for_timeout(20)
    if by == "Stop":
        box.get_by_role("button", name="Stop").click()
        box.get_by_role("button", name="Stopping…").wait_for()
    else:
        page.keyboard.press("Escape")
    held[0].continue_()
    if by == "Stop":
        box = page.get_by_role("dialog", name="Purge: stopped")
        box.get_by_text("Stopped: 200 of 450 jobs cancelled, 250 left as they are.").wait_for()
        assert "stopped" in box.get_by_role("progressbar").get_attribute("class")
        box.get_by_role("button", name="Close").click()
        box.wait_for(state="detached")
    else:
        page.get_by_text("Purge. Stopped: 200 of 450 jobs cancelled, 250 left").wait_for()
    assert site.stock.ask("GET", f"/queues/{queue}")["queued"] == 250
    page = visit(site.url, "/audit")
    row = page.locator("tr", has_text=queue)
    assert [cell.inner_text() for cell in row.locator("td").all()[1:]] == [
        "Purge",
        f"jobs: state=queued queue={queue}",
        queue,
        "cancelled 200 of 450; not finished",
    ]


def test_of_two_tabs_that_retry_the_same_jobs_each_says_what_it_did(visit, site):
    queue = "both-tabs"
    for _ in range(5):
        site.stock.dead("t", queue, "Boom", "words")
    tabs = [visit(site.url, f"/failures?queue={queue}") for _ in range(2)]
    boxes = []
    for page in tabs:
        page.get_by_role("button", name="Retry 5").click()
        boxes.append(page.get_by_role("dialog"))
        boxes[-1].get_by_text("5 jobs found.").wait_for()
    boxes[0].get_by_role("button", name="Retry 5").click()
    boxes[0].get_by_text("Done: 5 jobs queued again.").wait_for()
    boxes[1].get_by_role("button", name="Retry 5").click()
    boxes[1].get_by_text("Done: 0 of 5 jobs queued again, 5 were changed by others.").wait_for()
    bar = boxes[1].get_by_role("progressbar")
    assert bar.get_attribute("value") == bar.get_attribute("max"), "nothing is left to do"
    assert "done" in bar.get_attribute("class")
    page = visit(site.url, "/audit")
    rows = page.locator("tr", has_text=queue)
    assert rows.locator("td:nth-of-type(2)").all_inner_texts() == ["Retry", "Retry"]
    assert rows.locator("td:last-child").all_inner_texts() == [
        "queued again 0 of 5; changed by others 5",
        "queued again 5 of 5",
    ]


@pytest.mark.parametrize("n", [10, 450])
def test_a_queue_is_purged_while_a_producer_submits(visit, site, n):
    queue, stop = f"fed-{n}", threading.Event()
    waiting(site, queue, n)
    page = visit(site.url, "/queues")
    row_of(page, queue)

    def produce():
        while not stop.is_set():
            waiting(site, queue, 5)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        row_of(page, queue).get_by_role("button", name="Purge").click()
        box = page.get_by_role("dialog")
        begin = box.get_by_role("button", name=re.compile(r"Purge [\d,]+$"))
        begin.wait_for()
        counted = int(begin.inner_text().removeprefix("Purge ").replace(",", ""))
        before = site.stock.ask("GET", f"/queues/{queue}")["queued"]
        while site.stock.ask("GET", f"/queues/{queue}")["queued"] < before * 1.2:
            pass
        begin.click()
        box.get_by_text(re.compile(r"^Done: [\d,]+ jobs cancelled\.$")).wait_for()
        box.get_by_role("button", name="Close").wait_for()
        assert not box.get_by_role("alert").is_visible()
    finally:
        stop.set()
        producer.join()
    found, cancelled = {"cursor": ""}, 0
    path = f"/jobs?queue={queue}&state=cancelled&limit=200"
    while found["cursor"] is not None:
        found = site.stock.ask("GET", f"{path}&cursor={found['cursor']}" if found["cursor"] else path)
        cancelled += len(found["jobs"])
    assert n <= cancelled <= counted
    assert site.stock.ask("GET", f"/queues/{queue}")["queued"] > before * 1.2 - counted


def test_a_purge_that_the_server_refuses_says_why_and_can_count_again(visit, site):
    """Jobs from before the count come into the queue between the count and the order."""
    waiting(site, "raced", 4)
    later = [site.stock.submit("t", "raced", delay=3600) for _ in range(3)]
    page = visit(site.url, "/queues")
    row_of(page, "raced").get_by_role("button", name="Purge 4: raced").click()
    box = page.get_by_role("dialog")
    box.get_by_text("4 jobs found.").wait_for()
    for job in later:
        site.stock.ask("POST", f"/jobs/{job}/promote")
    box.get_by_role("button", name="Purge 4").click()
    box.get_by_role("alert").get_by_text("7 jobs were found, and 4 expected: nothing was done").wait_for()
    assert states(site, "raced") == ["queued"] * 7
    box.get_by_role("button", name="Count again").click()
    box.get_by_text("7 jobs found.").wait_for()
    assert not box.get_by_role("alert").is_visible()
    box.get_by_role("button", name="Purge 7").click()
    box.get_by_text("Done: 7 jobs cancelled.").wait_for()
    assert not box.get_by_role("button", name="Count again").is_visible()


def test_a_count_that_redis_does_not_answer_is_not_called_an_order(visit, site):
    waiting(site, "uncounted-yet", 3)
    page = visit(site.url, "/queues")
    detail = "Redis does not answer: send the request again later"
    problem = {"type": "urn:sublet:problem:unavailable", "detail": detail}
    page.route("**/jobs/cancel", lambda route: route.fulfill(status=503, json=problem), times=1)
    row_of(page, "uncounted-yet").get_by_role("button", name="Purge 3: uncounted-yet").click()
    box = page.get_by_role("dialog")
    box.get_by_text("The jobs were not counted.").wait_for()
    assert box.get_by_text("Counting…").count() == 0
    assert not box.get_by_role("button", name="Purge").is_visible()
    box.get_by_role("button", name="Count again").click()
    box.get_by_text("3 jobs found.").wait_for()


def test_a_count_that_fails_can_be_repeated(visit, site):
    waiting(site, "uncounted", 3)
    page = visit(site.url, "/queues")
    page.route("**/jobs/cancel", lambda route: route.abort(), times=1)
    row_of(page, "uncounted").get_by_role("button", name="Purge 3: uncounted").click()
    box = page.get_by_role("dialog")
    box.get_by_role("alert").get_by_text("The server did not answer.").wait_for()
    box.get_by_role("button", name="Count again").click()
    box.get_by_text("3 jobs found.").wait_for()
    box.get_by_role("button", name="Purge 3").click()
    box.get_by_text("Done: 3 jobs cancelled.").wait_for()


@pytest.mark.parametrize(("token", "n"), [(READ, 0), (ADMIN, 1)])
def test_a_purge_is_offered_where_jobs_wait_to_tokens_that_may_cancel(visit, site, token, n):
    queue = f"offered-{n}"
    waiting(site, queue, 2)
    site.stock.ask("PATCH", "/queues/vacant", {"limits": {"jobs": 5}})
    with serve_process(site.settings, tokens=TOKENS) as server:
        page = visit(server.url, "/queues", token=token)
        row_of(page, queue)
        if n:
            page.get_by_role("button", name="Configure vacant").wait_for()
        assert page.get_by_role("button", name=f"Purge 2: {queue}").count() == n
        assert row_of(page, "vacant").get_by_role("button", name="Purge").count() == 0


def test_waiting_jobs_are_cancelled_only_where_some_wait(visit, site):
    stock, queue = site.stock, "some-wait"
    for message in ("words", "others"):
        stock.dead("t", queue, "Boom", message)
    for _ in range(2):
        stock.settle(stock.held("t", queue, backoff=3600), "fail", code="Boom", message="words")
    page = visit(site.url, f"/failures?queue={queue}")
    rows = page.locator("[aria-label=Failures] tbody tr")
    offered = rows.filter(has_text="words").get_by_role("button").all_inner_texts()
    assert offered == ["Retry 1", "Erase 1", "Cancel 2 waiting"]
    offered = rows.filter(has_text="others").get_by_role("button").all_inner_texts()
    assert offered == ["Retry 1", "Erase 1"]


def test_a_group_that_was_not_read_in_whole_is_ordered_as_all(visit, site):
    job = site.stock.dead("t", "unread", "Boom", "words")
    dead = site.stock.ask("GET", f"/jobs/{job}")
    page = visit(site.url, "/queues")
    answer = {"jobs": [dead | {"id": f"0-{n}"} for n in range(200)], "cursor": "more"}
    page.route(re.compile(r"/jobs\?state=dead&"), lambda route: route.fulfill(json=answer))
    counted = {"found": 1524, "counted_at": "2030-01-31T09:00:00Z", "jobs": [], "cursor": None}
    page.route("**/jobs/retry", lambda route: route.fulfill(json=counted))
    page.get_by_role("link", name="Failures").click()
    page.locator("td", has_text="1,000+").wait_for()
    page.get_by_role("button", name="Retry all").click()
    box = page.get_by_role("dialog")
    box.get_by_text("1,524 jobs found: more than the 1,000 that the page has read.").wait_for()
    box.get_by_role("button", name="Retry 1,524").wait_for()


# forms that are refused


def test_a_refused_reschedule_keeps_its_form_and_what_was_typed(visit, site):
    job = site.stock.submit("t", "moved", delay=3600)
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name="Reschedule").click()
    box = page.get_by_role("dialog")
    box.get_by_role("button", name="Reschedule").click()
    box.get_by_role("alert").get_by_text("Change the time or the priority.").wait_for()
    box.get_by_label("Time").fill("9000-01-01T00:00")
    box.get_by_label("Priority").fill("7")
    box.get_by_role("button", name="Reschedule").click()
    field = box.locator("label", has=page.locator("[name=run_at]"))
    field.get_by_role("alert").wait_for()
    assert box.get_by_label("Time").get_attribute("aria-invalid") == "true"
    assert box.get_by_label("Time").input_value().startswith("9000-01-01T00:00")
    assert box.get_by_label("Priority").input_value() == "7"
    box.get_by_label("Time").fill("2090-01-01T00:00")
    box.get_by_role("button", name="Reschedule").click()
    box.wait_for(state="detached")
    assert site.stock.ask("GET", f"/jobs/{job}")["priority"] == 7


def test_a_reschedule_of_a_job_that_has_changed_stays_open_and_says_so(visit, site):
    job = site.stock.submit("t", "left", delay=3600)
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name="Reschedule").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Priority").fill("7")
    page.route(f"**/jobs/{job}", lambda route: route.abort())  # the page does not see the change
    site.stock.ask("POST", f"/jobs/{job}/cancel")
    box.get_by_role("button", name="Reschedule").click()
    box.get_by_role("alert").wait_for()
    page.unroute(f"**/jobs/{job}")
    assert box.get_by_label("Priority").input_value() == "7"
    box.get_by_role("button", name="Keep as it is").click()
    page.locator(".title .badge.cancelled").wait_for()


@pytest.mark.parametrize(
    ("order", "change", "words"),
    [
        ("Reschedule", "cancel", "The job is cancelled now"),
        ("Reschedule", "claim", "The job is running now"),
        ("Reschedule", "reschedule", "The job has been changed"),
        ("Cancel", "cancel", "The job is cancelled now"),
    ],
)
def test_a_dialog_says_that_its_job_has_changed_and_gives_no_order(visit, site, order, change, words):
    queue = f"overtaken-{order}-{change}"
    job = site.stock.submit("t", queue)
    page = visit(site.url, f"/jobs/{job}")
    page.wait_for_selector(".mark.live")
    page.get_by_role("button", name=order, exact=True).click()
    box = page.get_by_role("dialog")
    if order == "Reschedule":
        box.get_by_label("Priority").fill("7")
    other = site.stock.submit("t", "elsewhere")
    site.stock.ask("POST", f"/jobs/{other}/cancel")  # another job changes nothing here
    page.wait_for_timeout(600)
    assert box.get_by_role("alert").count() == 0
    if change == "claim":
        site.stock.ask("POST", "/jobs/claim", {"queues": [queue], "worker": "w", "lease": 60})
    else:
        body = {"priority": 3} if change == "reschedule" else {}
        site.stock.ask("POST", f"/jobs/{job}/{change}", body)
    if change == "reschedule":
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it is no event: read now
    box.get_by_role("alert").get_by_text(f"{words}: close this, and look at it again.").wait_for()
    assert box.get_by_role("button").all_inner_texts() == ["Keep as it is"]
    if order == "Reschedule":
        assert box.get_by_label("Priority").input_value() == "7"


def test_a_refused_submit_is_explained_beside_each_field(visit, site):
    page = visit(site.url, f"/jobs/{site.stock.ids['dead']}")
    page.get_by_role("button", name="Edit and submit again").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Payload").fill("{not json")
    box.get_by_role("button", name="Submit").click()
    payload = box.locator("label", has=page.locator("[name=payload]"))
    payload.get_by_role("alert").get_by_text("not valid JSON").wait_for()
    box.locator("[name=payload]").fill('{"typed": 1}')
    box.locator("[name=queue]").fill("no such name")
    box.get_by_role("button", name="Submit").click()
    queue = box.locator("label", has=page.locator("[name=queue]"))
    queue.get_by_role("alert").wait_for()
    assert payload.get_by_role("alert").count() == 0
    assert box.locator("[name=payload]").input_value() == '{"typed": 1}'
    assert page.evaluate("document.activeElement.name") == "queue"


def test_a_refused_configuration_keeps_its_form_and_what_was_typed(visit, site):
    site.stock.submit("t", "settled")
    page = visit(site.url, "/queues")
    row_of(page, "settled").get_by_role("button", name="Configure settled").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Unfinished jobs").fill("999999999999999")
    box.get_by_label("Task for each dead job").fill("report_death")
    box.get_by_role("button", name="Configure").click()
    box.locator("label", has=page.locator("[name=jobs]")).get_by_role("alert").wait_for()
    assert box.get_by_label("Unfinished jobs").input_value() == "999999999999999"
    page.route(re.compile("/queues/settled$"), lambda route: route.abort(), times=1)
    box.get_by_label("Unfinished jobs").fill("9")
    box.get_by_role("button", name="Configure").click()
    box.locator(".note").get_by_text("The server did not answer.").wait_for()
    box.get_by_role("button", name="Configure").click()
    box.wait_for(state="detached")
    found = site.stock.ask("GET", "/queues/settled")
    assert (found["limits"], found["on_dead"]) == ({"jobs": 9}, "report_death")


def test_arguments_that_the_server_knows_are_wrong_are_not_submitted_again(visit, site):
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
    site.stock.ask("PUT", "/tasks", {"tasks": [{"name": "typed_task", "arguments": schema}]})
    job = site.stock.dead("typed_task", "typed", "Boom", "words", payload={"order": 1})
    page = visit(site.url, f"/jobs/{job}")
    page.get_by_role("button", name="Edit and submit again").click()
    box = page.get_by_role("dialog")
    box.locator("[name=payload]").fill('{"order": "one"}')
    box.get_by_role("button", name="Submit").click()
    field = box.locator("label", has=page.locator("[name=payload]"))
    field.get_by_role("alert").get_by_text("use integer, not string").wait_for()
    assert box.locator("[name=payload]").input_value() == '{"order": "one"}'
    box.locator("[name=payload]").fill('{"order": 2}')
    box.get_by_role("button", name="Submit").click()
    page.get_by_text("Submitted.").wait_for()
    jobs = site.stock.ask("GET", "/jobs?queue=typed")["jobs"]
    assert sorted(one["payload"]["order"] for one in jobs) == [1, 2]
