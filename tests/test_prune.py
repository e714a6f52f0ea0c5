"""prune: forget finished jobs that are past their time."""

import pytest

from jobs import keys

DAY = 86_400


async def finish(desk, job_id, state, rules=""):
    lease = await desk.running(job_id, rules=rules)
    if state == "completed":
        await desk.complete(lease)
    elif state == "dead":
        await desk.fail(lease, again=False)
    else:
        await desk.order("cancel", job_id)
        await desk.release(lease)


@pytest.mark.parametrize(("state", "days"), [("completed", 1), ("dead", 14), ("cancelled", 14)])
async def test_a_finished_job_is_forgotten_after_its_time_and_not_before(desk, state, days):
    await finish(desk, "a", state)
    desk.elapse(days * DAY - 2)
    assert await desk.prune() == (0, False)
    assert desk.state("a") == state
    desk.elapse(2)
    assert await desk.prune() == (1, False)
    assert desk.state("a") is None
    assert desk.job("a") == {}


@pytest.mark.parametrize("state", ["dead", "cancelled"])
async def test_a_longer_retention_holds_for_what_went_wrong_too(desk, state):
    await finish(desk, "a", state, rules=f"retention={30 * DAY * 1000}")
    desk.elapse(29 * DAY)
    assert await desk.prune() == (0, False)
    desk.elapse(DAY)
    assert await desk.prune() == (1, False)


async def test_a_shorter_retention_holds_for_results_alone(desk):
    await finish(desk, "a", "completed", rules="retention=60000")
    await finish(desk, "b", "dead", rules="retention=60000")
    desk.elapse(61)
    assert await desk.prune() == (1, False)
    assert desk.state("b") == "dead"


async def test_what_is_not_finished_is_never_forgotten(desk):
    await desk.submit("a")
    await desk.submit("b", rules="delay=3600000")
    desk.elapse(100 * DAY)
    assert await desk.prune() == (0, False)
    assert [lease.id for lease in await desk.claim(3)] == ["a", "b"]


async def test_no_more_is_forgotten_than_the_limit_and_it_says_whether_there_is_more(desk):
    for i, state in enumerate(["completed", "completed", "dead", "cancelled", "dead"]):
        await finish(desk, f"j{i}", state)
    desk.elapse(15 * DAY)
    assert await desk.prune(2) == (2, True)
    assert await desk.prune(2) == (2, True)
    assert await desk.prune(2) == (1, False)
    assert await desk.prune(2) == (0, False)
    assert desk.raw.keys(f"{desk.base}:job:*") == []


async def test_a_forgotten_id_may_be_used_again(desk):
    await finish(desk, "a", "completed")
    desk.elapse(2 * DAY)
    await desk.prune()
    assert (await desk.submit("a"))[0].created
    assert (await desk.take("a")).attempt == 1


async def test_a_revived_job_is_not_forgotten(desk):
    await finish(desk, "a", "dead")
    await desk.order("retry", "a")
    desk.elapse(15 * DAY)
    assert await desk.prune() == (0, False)
    assert desk.state("a") == "queued"


@pytest.mark.real_server
async def test_by_count_those_go_first_whose_time_would_come_first(desk):
    desk.raw.zadd(keys.structure(desk.base, "completed"), {f"j{i}": 8e12 + i for i in range(100_003)})
    assert await desk.prune(2) == (2, True)
    assert await desk.prune(2) == (1, False)
    assert desk.raw.zrange(keys.structure(desk.base, "completed"), 0, 0) == ["j3"]


async def test_an_id_without_a_job_is_dropped(desk):
    desk.raw.zadd(keys.structure(desk.base, "dead"), {"ghost": 1})
    assert await desk.prune() == (1, False)
    assert desk.members("dead") == []


async def test_a_store_prunes_and_tells(desk, store):
    await finish(desk, "a", "completed")
    desk.elapse(2 * DAY)
    assert await store.follow(store.layout.prune()) == (1, False)
