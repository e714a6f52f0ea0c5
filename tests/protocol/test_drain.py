"""drain: an operator asks a worker to finish its jobs, claim no more, and exit."""

import pytest

from sublet import Invalid, NotFound
from sublet.errors import Changed


async def test_a_worker_is_asked_to_drain(desk):
    await desk.enlist("w")
    assert await desk.drain("w") == "drain"
    assert abs(int(desk.registration("w")["drain"]) - desk.now()) < 5000
    assert await desk.enlist("w") == "drain"


async def test_the_first_drain_request_is_kept(desk):
    await desk.enlist("w")
    await desk.drain("w")
    desk.elapse(60)
    before = desk.everything()
    assert await desk.drain("w") == "drain"
    assert desk.everything() == before


async def test_an_unknown_worker_is_not_found(desk):
    await desk.enlist("w")
    before = desk.everything()
    for name in ("nobody", "", "w "):
        with pytest.raises(NotFound, match="no worker"):
            await desk.drain(name)
    assert desk.everything() == before


async def test_a_worker_that_was_restarted_meanwhile_is_not_drained(desk):
    await desk.enlist("w", "1")
    await desk.enlist("w", "2")
    before = desk.everything()
    with pytest.raises(Changed, match="restarted: read it again"):
        await desk.drain("w", "1")
    assert desk.everything() == before
    assert await desk.enlist("w", "2") == "work"


async def test_only_the_named_worker_is_drained(desk):
    await desk.enlist("w")
    await desk.enlist("other")
    await desk.drain("w")
    assert (await desk.enlist("other"), await desk.enlist("w")) == ("work", "drain")


async def test_the_jobs_of_a_draining_worker_continue(desk):
    lease = await desk.running("a", worker="w")
    await desk.enlist("w")
    await desk.drain("w")
    assert isinstance(await desk.heartbeat(lease), int)
    assert await desk.complete(lease) == "completed"


async def test_the_drain_operation_reads_the_workers_life_first(desk, store):
    operations = store.operations
    await desk.enlist("w", "7")
    assert await store.follow(operations.drain("w")) == "drain"
    assert await desk.enlist("w", "7") == "drain"
    with pytest.raises(NotFound, match="no worker nobody"):
        await store.follow(operations.drain("nobody"))
    with pytest.raises(Invalid, match="use 1 to 128"):
        await store.follow(operations.drain("no name"))
