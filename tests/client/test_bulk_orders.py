"""Orders by filter: pages, cursors, outcomes, and the number that was expected."""

import asyncio
import functools
from datetime import UTC, datetime, timedelta

import pytest

from sublet import Changed, Client, Invalid, Options, WrongState
from sublet.model import Failure, State
from sublet.operations.orders.bulk import VERBS, Selection
from sublet.protocol import server_info
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]


@pytest.fixture
async def client(settings):
    async with Client(settings) as client:
        yield client


async def make_dead(client, n, code="Boom", message=""):
    await asyncio.gather(*(client.submit("t") for _ in range(n)))
    await fail_all(client, n, code, message)


async def fail_all(client, left, code, message=""):
    while left:
        found = (await client.store.claim(worker="w", queues=["default"], n=50, lease=60)).leases
        await client.store.settle([Failure(lease, code, message, again=False) for lease in found])
        left -= len(found)


async def pages(client, order, wanted, **how):
    cursor, found = None, []
    while not found or cursor:
        found.append(await client.order_page(order, wanted, cursor=cursor, **how))
        cursor = found[-1].cursor
    return found


async def test_every_job_of_a_filter_is_ordered_once(client):
    await make_dead(client, 450)
    await make_dead(client, 30, "Other")
    wanted = Selection(code="Boom")
    counted = await pages(client, "retry", wanted, dry_run=True)
    assert sum(page.found for page in counted) == 450
    assert max(page.found for page in counted) <= 200
    given = await pages(client, "retry", wanted)
    outcomes = [one for page in given for one in page.outcomes]
    assert {one.answer for one in outcomes} == {"queued"}
    assert {one.revision for one in outcomes} == {1}
    assert len({one.id for one in outcomes}) == len(outcomes) == 450
    assert len((await client.list_jobs(state=State.DEAD, limit=100)).jobs) == 30
    assert sum(page.found for page in await pages(client, "retry", wanted)) == 0


@pytest.mark.parametrize(
    ("order", "answer"), [("retry", "queued"), ("cancel", "cancelled"), ("promote", "queued")]
)
async def test_of_two_orders_at_once_each_job_is_changed_by_one(client, order, answer):
    await asyncio.gather(*(client.submit("t", options=Options(delay=3600)) for _ in range(60)))
    if order == "retry":
        await pages(client, "cancel", Selection())
    wanted = Selection(State.CANCELLED if order == "retry" else State.SCHEDULED)
    both = await asyncio.gather(*(pages(client, order, wanted) for _ in range(2)))
    outcomes = [one for found in both for page in found for one in page.outcomes]
    assert sum(page.found for found in both for page in found) == len(outcomes) > 60, "both saw jobs"
    assert [one.answer for one in outcomes].count(answer) == 60
    others = [one.refusal for one in outcomes if not one.answer]
    assert {type(refusal) for refusal in others} <= {Changed, WrongState}  # before or after it was listed


async def test_a_page_that_is_sent_again_has_the_same_answers(client):
    await asyncio.gather(*(client.submit("t") for _ in range(250)))
    wanted = Selection(State.QUEUED)
    first = await client.order_page("cancel", wanted)
    seen = await asyncio.gather(*(client.order_page("cancel", wanted, cursor=first.cursor) for _ in range(2)))
    outcomes = [one for page in seen for one in page.outcomes]
    assert {one.answer for one in outcomes} == {"cancelled"}, "the cursor names the order"


async def test_a_retry_ends_although_its_jobs_die_again_at_once(client):
    await make_dead(client, 250)
    cursor, ordered = None, []
    while len(ordered) < 1000 and (not ordered or cursor):
        page = await client.order_page("retry", Selection(), cursor=cursor)
        ordered += [one.id for one in page.outcomes]
        cursor = page.cursor
        await fail_all(client, len(page.outcomes), "Boom")
    assert len(ordered) == len({*ordered}) == 250


async def test_errors_are_told_apart_by_message_but_for_numbers_and_quotes(client):
    for message in ("order 7 has no customer 'c-1'", "order 12 has no customer 'd'", "no such table"):
        await make_dead(client, 1, message=message)
    wanted = Selection(message="order 3 has no customer 'x'", code="Boom")
    assert (await client.order_page("erase", wanted)).found == 2
    (left,) = (await client.list_jobs()).jobs
    assert left.last_error.message == "no such table"


async def test_queued_jobs_of_all_queues_are_cancelled(client):
    await asyncio.gather(*(client.submit("t") for _ in range(250)))
    given = await pages(client, "cancel", Selection(task="t"))
    assert sum(len(page.outcomes) for page in given) == 250
    assert (await client.queue("default")).queued == 0


@pytest.mark.parametrize(
    ("expected", "refused"), [(10, False), (11, False), (100, False), (9, True), (0, True)]
)
async def test_an_order_that_finds_over_a_tenth_more_than_were_counted_is_refused(client, expected, refused):
    await make_dead(client, 10)
    if refused:
        with pytest.raises(Changed, match=f"10 jobs were found, and {expected} expected: nothing was done"):
            await client.order_page("retry", Selection(), expected=expected)
    else:
        await client.order_page("retry", Selection(), expected=expected)
    left = len((await client.list_jobs(state=State.DEAD)).jobs)
    assert left == (10 if refused else 0)


async def test_the_pages_of_an_order_together_find_no_more_than_were_counted(client):
    await make_dead(client, 250)
    first = await client.order_page("retry", Selection(), expected=220)
    with pytest.raises(Changed, match="250 jobs were found, and 220 expected: stopped after 200: count"):
        await client.order_page("retry", Selection(), expected=220, cursor=first.cursor)
    assert len((await client.list_jobs(state=State.DEAD, limit=100)).jobs) == 50


async def later(client, counted):
    """Wait until Redis's clock is past a count."""
    while await client.store.run(server_info.clock()) < counted.counted_at + timedelta(milliseconds=1):
        pass


MAKES = {
    "cancel": lambda client, n: asyncio.gather(*(client.submit("t") for _ in range(n))),
    "promote": lambda client, n: asyncio.gather(
        *(client.submit("t", {}, Options(delay=3600)) for _ in range(n))
    ),
    "retry": make_dead,
    "erase": make_dead,
}


@pytest.mark.parametrize("order", MAKES)
async def test_jobs_that_come_after_the_count_are_neither_counted_nor_changed(client, order):
    await MAKES[order](client, 4)
    counted = await client.order_page(order, Selection(), dry_run=True)
    await later(client, counted)
    before = {job.id for job in (await client.list_jobs()).jobs}
    await MAKES[order](client, 9)
    how = {"expected": counted.found, "counted_at": counted.counted_at}
    given = await client.order_page(order, Selection(), **how)
    assert {one.id for one in given.outcomes} == before
    assert (given.counted_at, len(before)) == (counted.counted_at, 4)
    assert (await client.order_page(order, Selection(), dry_run=True)).found == 9


async def follow(client, plan, between):
    """Run a plan; before each read of a list, `between` is awaited."""
    reply = None
    while True:
        try:
            call = plan.send(reply)
        except StopIteration as end:
            return end.value
        if call.commands[0][0] == "ZRANGE":
            await between()
        reply = await client.store.run(call)


async def two_die(client):
    await asyncio.gather(*(client.submit("t", {}, Options(queue="late")) for _ in range(2)))
    leases = (await client.store.claim(worker="w", queues=["late"], n=2, lease=60)).leases
    await client.store.settle([Failure(lease, "Boom", "", again=False) for lease in leases])


@pytest.mark.parametrize("dry_run", [True, False])
async def test_jobs_that_die_meanwhile_change_nothing(client, dry_run):
    """Two die before each read: the others are found and ordered once."""
    await make_dead(client, 450)
    counted = await client.order_page("retry", Selection(), dry_run=True)
    await later(client, counted)
    orders, found, ids, cursor = client.store.operations, 0, [], None
    while not found or cursor:
        plan = orders.order_page(
            "retry", Selection(), dry_run=dry_run, cursor=cursor, counted_at=counted.counted_at
        )
        page = await follow(client, plan, lambda: two_die(client))
        found, cursor = found + page.found, page.cursor
        ids += [one.id for one in page.outcomes if one.answer == "queued"]
    assert (found, len(ids), len(set(ids))) == ((450, 0, 0) if dry_run else (450, 450, 450))


async def test_a_job_that_dies_after_the_count_stays_dead(client):
    await client.submit("t")
    counted = await client.order_page("retry", Selection(), dry_run=True)
    await later(client, counted)
    await fail_all(client, 1, "Boom")
    given = await client.order_page("retry", Selection(), counted_at=counted.counted_at)
    assert (counted.found, given.found) == (0, 0)


async def test_a_count_cannot_be_of_the_future(client):
    """A retry would order jobs that die during it again and again."""
    await make_dead(client, 1)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    page = await client.order_page("retry", Selection(), counted_at=tomorrow)
    assert (page.found, page.counted_at < tomorrow - timedelta(hours=1)) == (1, True)


async def test_a_count_ends_although_jobs_are_added(client):
    """Each read finds a few more."""
    added = []

    async def add():
        added.append(await client.submit("t"))

    plan = client.store.operations.order_page("cancel", Selection(queue="default"), dry_run=True)
    page = await follow(client, plan, add)
    assert (page.cursor, 0 < len(added) < 10) == (None, True)


async def produce(client, made):
    while True:
        made += [await client.submit("t") for _ in range(5)]


@pytest.mark.parametrize("queue", [None, "default"])
async def test_a_queue_is_emptied_over_http_while_a_producer_submits(client, queue):
    made, token = [], "secret-of-in-0123456"
    ask = asker(Api(client.store, Tokens(f"in:admin:{token}")))
    core = functools.partial(ask, token=token)
    body = {"filter": {"queue": queue} if queue else {}}
    await asyncio.gather(*(client.submit("t") for _ in range(450)))
    producer = asyncio.create_task(produce(client, made))
    counted = (await core("POST", "/jobs/cancel", body | {"dry_run": True})).json()
    found, cursor = counted["found"], counted["cursor"]
    while cursor:
        page = (await core("POST", "/jobs/cancel", body | {"dry_run": True, "cursor": cursor})).json()
        found, cursor = found + page["found"], page["cursor"]
    while len(made) < found:  # more have come than waited
        await asyncio.sleep(0)
    body |= {"expected": found, "counted_at": counted["counted_at"]}
    jobs, answer = [], {}
    while not jobs or answer["cursor"]:
        done = await core("POST", "/jobs/cancel", body | {"cursor": answer.get("cursor")})
        assert done.status == 200, done.json()
        answer = done.json()
        jobs += answer["jobs"]
    producer.cancel()
    assert {job["status"] for job in jobs} == {200}
    assert 450 <= len(jobs) == found
    left = (await client.list_jobs(state=State.QUEUED, limit=100)).jobs
    assert min(job.submitted_at for job in left) > datetime.fromisoformat(counted["counted_at"])


async def test_a_state_that_the_order_does_not_take_is_invalid(client):
    with pytest.raises(Invalid, match="state queued: use completed or dead or cancelled"):
        await client.order_page("erase", Selection(State.QUEUED))


async def test_over_http_each_job_has_its_outcome(client, settings):
    await make_dead(client, 3)
    api = Api(client.store, Tokens("in:admin@default:secret-of-in-0123456 out:admin@x:secret-of-out-012345"))
    core, body = asker(api), {"filter": {"task": "t"}, "expected": 3}
    hidden = await core("POST", "/jobs/erase", {"filter": {}}, token="secret-of-out-012345")
    assert [hidden.json()[name] for name in ("found", "jobs", "cursor")] == [0, [], None]
    token = "secret-of-in-0123456"
    counted = await core("POST", "/jobs/erase", body | {"dry_run": True}, token=token)
    assert counted.json()["found"] == 3
    done = (await core("POST", "/jobs/erase", body, token=token)).json()
    assert [(job["status"], job["state"], job["revision"]) for job in done["jobs"]] == [
        (200, "erased", 1)
    ] * 3
    again = await core("POST", "/jobs/erase", body, token=token)
    assert (again.status, again.json()["found"]) == (200, 0)
    await make_dead(client, 4)
    more = await core("POST", "/jobs/erase", body, token=token)
    assert (more.status, more.problem) == (409, "changed")
    wrong = await core("POST", "/jobs/retry", {"filter": {"state": "queued"}}, token=token)
    assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "#/filter/state")


@pytest.mark.parametrize("order", ["cancel", "retry", "promote"])
async def test_the_word_of_an_order_is_visible_text(client, order):
    handle = await client.submit("t", options=Options(delay=3600))
    base = client.store.operations.base_of_job(handle.id)
    with pytest.raises(Invalid, match="order: use up to 128 visible"):
        await client.store.run(VERBS[order](base, handle.id, 0, order="two words"))
