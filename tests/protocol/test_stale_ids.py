"""Dangling ids: an entry without its job, or a job without its entry, does no harm."""

from sublet.protocol import keys


def ids(leases):
    return [lease.id for lease in leases]


async def test_an_id_in_a_queue_without_a_job_does_no_harm(desk):
    await desk.submit("a")
    desk.raw.zadd(keys.queue(desk.base, "q"), {"ghost": 1})
    assert ids(await desk.claim(3)) == ["a"]
    assert desk.members("queue:q") == []


async def test_an_id_in_a_queue_whose_job_is_elsewhere_is_dropped(desk):
    held = await desk.running("a")
    desk.raw.zadd(keys.queue(desk.base, "q"), {"a": 1})
    assert await desk.claim() == []
    assert desk.state("a") == "running"
    assert await desk.complete(held) == "completed"


async def test_ids_in_running_and_scheduled_without_a_job_do_no_harm(desk):
    for structure in ("running", "scheduled"):
        desk.raw.zadd(keys.structure(desk.base, structure), {"ghost": 1})
    await desk.submit("a")
    assert ids(await desk.claim(3)) == ["a"]
    assert (desk.members("running"), desk.members("scheduled")) == (["a"], [])


async def test_ids_in_running_and_scheduled_whose_job_is_elsewhere_are_dropped(desk):
    await desk.submit("a", "b")
    for structure in ("running", "scheduled"):
        desk.raw.zadd(keys.structure(desk.base, structure), {"b": 1})
    assert ids(await desk.claim(1)) == ["a"]
    assert desk.state("b") == "queued"


async def test_a_running_job_in_scheduled_keeps_running(desk):
    lease = await desk.running("a")
    desk.raw.zadd(keys.structure(desk.base, "scheduled"), {"a": 1})
    assert await desk.claim() == []
    assert desk.state("a") == "running"
    assert await desk.complete(lease) == "completed"


async def test_a_finished_job_in_running_or_scheduled_stays_finished(desk):
    await desk.complete(await desk.running("a"))
    for structure in ("running", "scheduled"):
        desk.raw.zadd(keys.structure(desk.base, structure), {"a": 1})
    await desk.reap()
    assert desk.state("a") == "completed"


async def test_a_queued_job_missing_in_its_queue_can_be_cancelled(desk):
    await desk.submit("a")
    desk.raw.zrem(keys.queue(desk.base, "q"), "a")
    assert await desk.claim() == []
    assert await desk.operate("cancel", "a") == "cancelled"
    assert desk.state("a") == "cancelled"


async def test_a_scheduled_job_missing_in_scheduled_can_be_promoted(desk):
    await desk.submit("a", rules="delay=1000")
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), "a")
    desk.elapse(2)
    assert await desk.reap() == (0, 0, False)
    assert await desk.operate("promote", "a") == "queued"
    assert ids(await desk.claim()) == ["a"]


async def test_a_running_job_missing_in_running_can_be_settled(desk):
    lease = await desk.running("a")
    desk.raw.zrem(keys.structure(desk.base, "running"), "a")
    assert await desk.fail(lease, again=False) == "dead"
    assert desk.state("a") == "dead"


async def test_a_finished_job_missing_in_its_structure_can_be_revived(desk):
    await desk.fail(await desk.running("a"), again=False)
    desk.raw.zrem(keys.structure(desk.base, "dead"), "a")
    assert await desk.operate("retry", "a") == "queued"
    assert ids(await desk.claim()) == ["a"]


async def test_a_memo_of_missing_jobs_does_no_harm(desk):
    await desk.submit("a", "b")
    first = await desk.claim(2, claim_id="same-claim-0123456789ab")
    desk.raw.delete(keys.job(desk.base, "a"))
    assert await desk.claim(2, claim_id="same-claim-0123456789ab") == first[1:]
