"""resume: hand out the jobs of a paused queue again."""

import pytest

from sublet.errors import Changed


async def test_a_resumed_queue_hands_out_its_jobs_in_order(desk):
    await desk.submit("a", "b")
    await desk.operate_queue("pause")
    await desk.submit("first", rules="priority=9")
    assert await desk.operate_queue("resume") == "resumed"
    assert [lease.id for lease in await desk.claim(5)] == ["first", "a", "b"]


async def test_a_resume_wakes_a_worker_for_queued_jobs(desk):
    await desk.operate_queue("pause")
    await desk.submit("a")
    assert desk.wake_ups() == 0
    await desk.operate_queue("resume")
    assert desk.wake_ups() == 1


async def test_no_worker_is_woken_for_an_empty_queue(desk):
    await desk.operate_queue("pause")
    await desk.operate_queue("resume")
    assert desk.wake_ups() == 0


async def test_a_queue_that_is_not_paused_can_be_resumed(desk):
    await desk.submit("a")
    assert await desk.operate_queue("resume") == "resumed"
    assert desk.raw.hget(f"{desk.base}:queues", "q") == "1 resume"
    assert desk.wake_ups() == 1


async def test_a_late_copy_of_the_request_does_not_resume_again(desk):
    await desk.operate_queue("pause")
    await desk.operate_queue("resume")
    await desk.operate_queue("pause")
    with pytest.raises(Changed, match="at revision 3, not 1"):
        await desk.operate_queue("resume", "q", 1)
    await desk.submit("a")
    assert await desk.claim() == []


async def test_limits_are_kept_after_pause_and_resume(desk):
    await desk.operate_queue("configure", "q", None, "jobs=5 bytes=100")
    await desk.operate_queue("pause")
    await desk.operate_queue("resume")
    assert desk.raw.hget(f"{desk.base}:queues", "q") == "3 resume jobs=5 bytes=100"
