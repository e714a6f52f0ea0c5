"""Jobs with a group are counted, listed, found and cancelled like the others of their queue."""

import pytest

from sublet.connection.transport import follow
from sublet.model import State
from sublet.operations import statistics
from sublet.operations.consistency import repair
from sublet.operations.consistency.audit import audit
from sublet.operations.orders.bulk import Selection
from sublet.protocol import keys


@pytest.fixture
async def both(desk):
    """Jobs with and without a group, in two queues."""
    await desk.submit("a", "b")
    await desk.submit("g1", "g2", rules="group=g")
    await desk.submit("h1", queue="other", rules="group=h cost=7")


async def test_they_are_listed_with_the_others(client, both):
    found = {job.id: (job.group, job.cost) for job in (await client.list_jobs(state="queued")).jobs}
    assert found == {"a": (None, 1), "b": (None, 1), "g1": ("g", 1), "g2": ("g", 1), "h1": ("h", 7)}
    assert [job.id for job in (await client.list_jobs(state="queued", queue="q")).jobs] == [
        "a",
        "b",
        "g1",
        "g2",
    ]


@pytest.mark.parametrize("queue", [None, "q"])
async def test_pages_go_on_from_the_ones_to_the_others(client, both, queue):
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = await client.list_jobs(state="queued", queue=queue, limit=1, cursor=cursor)
        found += [job.id for job in page.jobs]
        cursor, pages = page.cursor, pages + 1
    assert sorted(found) == ["a", "b", "g1", "g2", *(["h1"] if queue is None else [])]


async def test_they_are_counted(client, desk, both):
    assert {queue.name: queue.queued for queue in await client.queues()} == {"q": 4, "other": 1}
    (stats,) = await client.stats()
    assert stats.states["queued"] == 5
    (numbers,) = await follow(desk.run, statistics.queues(desk.base, ["other"]))
    assert numbers.queued == 1


async def test_an_order_for_all_jobs_cancels_them(client, both):
    pages, cursor = 0, None
    while pages == 0 or cursor:
        page = await client.order_page("cancel", Selection(state=State.QUEUED), cursor=cursor)
        cursor, pages = page.cursor, pages + 1
    assert (await client.list_jobs(state="queued")).jobs == ()


async def test_a_scan_finds_and_repairs_what_was_lost(client, desk, both):
    desk.raw.delete(keys.grouped(desk.base, "q"), keys.turns(desk.base, "q"))
    found = await follow(desk.run, audit([desk.base]))
    assert {(fault.name, fault.found.split(" ")[0]) for fault in found.faults} == {
        ("g1", "placed"),
        ("g2", "placed"),
    }
    await follow(desk.run, repair.mend(desk.base, found.faults, 1))
    assert (await follow(desk.run, audit([desk.base]))).faults == []
    claimed = await desk.claim(9)
    desk.elapse(5)
    claimed += await desk.claim(9)
    assert sorted(lease.id for lease in claimed) == ["a", "b", "g1", "g2"]
