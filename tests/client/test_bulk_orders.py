"""Orders by filter: pages, cursors, outcomes, and the number that was expected."""

import asyncio

import pytest

from sublet import Changed, Client, Invalid
from sublet.model import Failure, State
from sublet.operations.orders.bulk import Selection
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
    ("expected", "refused"), [(10, False), (11, False), (9, True), (12, True), (0, True)]
)
async def test_a_number_that_is_off_by_more_than_a_tenth_is_refused(client, expected, refused):
    await make_dead(client, 10)
    if refused:
        with pytest.raises(Changed, match="10 jobs were found"):
            await client.order_page("retry", Selection(), expected=expected)
    else:
        await client.order_page("retry", Selection(), expected=expected)
    left = len((await client.list_jobs(state=State.DEAD)).jobs)
    assert left == (10 if refused else 0)


async def test_a_state_that_the_order_does_not_take_is_invalid(client):
    with pytest.raises(Invalid, match="state queued: erase takes completed or dead or cancelled"):
        await client.order_page("erase", Selection(State.QUEUED))


async def test_over_http_each_job_has_its_outcome(client, settings):
    await make_dead(client, 3)
    api = Api(client.store, Tokens("in:admin@default:secret-of-in-0123456 out:admin@x:secret-of-out-012345"))
    core, body = asker(api), {"filter": {"task": "t"}, "expected": 3}
    hidden = await core("POST", "/jobs/erase", {"filter": {}}, token="secret-of-out-012345")
    assert hidden.json() == {"found": 0, "jobs": [], "cursor": None}
    token = "secret-of-in-0123456"
    counted = await core("POST", "/jobs/erase", body | {"dry_run": True}, token=token)
    assert counted.json()["found"] == 3
    done = (await core("POST", "/jobs/erase", body, token=token)).json()
    assert [(job["status"], job["state"], job["revision"]) for job in done["jobs"]] == [
        (200, "erased", 1)
    ] * 3
    again = await core("POST", "/jobs/erase", body, token=token)
    assert (again.status, again.problem) == (409, "changed")
    wrong = await core("POST", "/jobs/retry", {"filter": {"state": "queued"}}, token=token)
    assert (wrong.status, wrong.json()["errors"][0]["pointer"]) == (422, "#/filter/state")
