"""pause: hand out no more jobs of a queue."""

import pytest

from sublet.errors import Changed, Invalid


async def test_a_paused_queue_accepts_jobs_and_hands_out_none(desk):
    await desk.submit("a")
    assert await desk.operate_queue("pause") == "paused"
    await desk.submit("b")
    assert await desk.claim(5) == []
    assert desk.members("queue:q") == ["a", "b"]


async def test_running_jobs_of_a_paused_queue_continue(desk):
    lease = await desk.running("a")
    await desk.operate_queue("pause")
    assert isinstance(await desk.heartbeat(lease), int)
    assert await desk.complete(lease) == "completed"


async def test_other_queues_are_not_paused(desk):
    await desk.submit("a")
    await desk.submit("b", queue="other")
    await desk.operate_queue("pause")
    assert [lease.id for lease in await desk.claim(5, queues=("q", "other"))] == ["b"]


async def test_due_and_released_jobs_of_a_paused_queue_wait(desk):
    lease = await desk.running("back")
    await desk.submit("due", rules="delay=1000")
    await desk.running("lost", lease=1)
    await desk.operate_queue("pause")
    await desk.release(lease)
    desk.elapse(2)
    assert await desk.claim(5) == []
    assert sorted(desk.members("queue:q")) == ["back", "due", "lost"]


async def test_no_worker_is_woken_for_a_paused_queue(desk):
    await desk.operate_queue("pause")
    await desk.submit("a")
    assert desk.wake_ups() == 0


async def test_a_claim_leaves_no_wake_up_for_a_paused_queue(desk):
    await desk.submit("waits", queue="q")
    await desk.submit("a", "b", queue="other")
    desk.raw.delete(f"{desk.base}:wake:q", f"{desk.base}:wake:other")
    await desk.operate_queue("pause")
    await desk.claim(1, queues=("q", "other"))
    assert (desk.wake_ups("q"), desk.wake_ups("other")) == (0, 1)


async def test_a_queue_may_be_paused_before_its_first_job(desk):
    await desk.operate_queue("pause", "new")
    await desk.submit("a", queue="new")
    assert await desk.claim(queues=("new",)) == []


async def test_a_second_pause_keeps_the_time_of_the_first(desk):
    await desk.operate_queue("pause")
    since = desk.raw.hget(f"{desk.base}:queues", "q").split("paused=")[1]
    await desk.operate_queue("pause")
    assert desk.raw.hget(f"{desk.base}:queues", "q") == f"2 pause paused={since}"


async def test_a_late_copy_of_the_request_does_not_pause_again(desk):
    await desk.operate_queue("pause")
    await desk.operate_queue("resume")
    before = desk.everything()
    with pytest.raises(Changed, match="queue q is at revision 2, not 0: read it again"):
        await desk.operate_queue("pause", "q", 0)
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("name", ["", "no good", "*", "x" * 129])
async def test_an_invalid_name_is_refused(desk, verb, name):
    before = desk.everything()
    with pytest.raises(Invalid, match="name a queue with 1 to 128 of"):
        await desk.operate_queue(verb, name, 0)
    assert desk.everything() == before


@pytest.mark.parametrize("revision", [1, -1, "x", "", "0.5", "00", "1e0"])
async def test_another_revision_of_the_queue_is_refused(desk, revision):
    with pytest.raises(Changed, match="queue q is at revision 0"):
        await desk.operate_queue("pause", "q", revision)
    assert desk.everything() == {desk.base: {"layout": "1", "partitions": "1"}}
