"""promote: queue a scheduled job now."""

import pytest

from sublet.errors import Changed, NotFound, WrongState
from sublet.protocol import keys


async def test_a_delayed_job_is_queued_now(desk):
    await desk.submit("a", rules="delay=3600000")
    desk.raw.delete(keys.wake(desk.base, "q"))
    assert await desk.operate("promote", "a") == "queued"
    assert desk.state("a") == "queued"
    assert desk.wake_ups() == 1
    assert desk.events()[-1] == ("a", "queued", "promote")
    assert (await desk.take("a")).attempt == 1


async def test_a_job_in_backoff_is_queued_now(desk):
    await desk.fail(await desk.running("a"))
    assert await desk.operate("promote", "a") == "queued"
    lease = await desk.take("a")
    assert (lease.attempt, desk.job("a")["tries_left"]) == (2, "1")


async def test_a_promoted_job_goes_to_the_end_of_its_priority(desk):
    await desk.submit("a", rules="delay=1000 priority=1")
    await desk.submit("b", rules="priority=1")
    await desk.submit("c")
    await desk.operate("promote", "a")
    assert desk.members("queue:q") == ["b", "a", "c"]


async def test_a_promoted_job_is_not_moved_again_at_its_due_time(desk):
    await desk.submit("a", rules="delay=1000")
    await desk.operate("promote", "a")
    lease = await desk.take("a")
    desk.elapse(2)
    assert await desk.reap() == (0, 0, False)
    assert await desk.complete(lease) == "completed"


async def test_a_repeated_promote_gets_the_same_reply_and_changes_nothing(desk):
    await desk.submit("a", rules="delay=1000")
    await desk.operate("promote", "a", 0)
    before = desk.everything()
    assert await desk.operate("promote", "a", 0) == "queued"
    assert desk.everything() == before


async def test_a_promote_repeated_after_a_later_change_is_refused(desk):
    await desk.submit("a", rules="delay=1000")
    await desk.operate("promote", "a", 0)
    await desk.fail(await desk.take("a"))
    before = desk.everything()
    with pytest.raises(Changed):
        await desk.operate("promote", "a", 0)
    assert desk.everything() == before


async def test_a_promote_with_an_old_revision_is_refused(desk):
    await desk.submit("a", rules="delay=1000")
    with pytest.raises(Changed):
        await desk.operate("promote", "a", 7)


async def test_only_scheduled_jobs_are_promoted(desk):
    await desk.complete(await desk.running("done"))
    await desk.fail(await desk.running("dead"), again=False)
    await desk.running("busy")
    await desk.submit("waiting", "gone")
    await desk.operate("cancel", "gone")
    before = desk.everything()
    for job_id in ("done", "dead", "busy", "waiting", "gone"):
        with pytest.raises(WrongState):
            await desk.operate("promote", job_id)
    assert desk.everything() == before


async def test_an_unknown_job_is_not_found(desk):
    with pytest.raises(NotFound):
        await desk.operate("promote", "nobody")
