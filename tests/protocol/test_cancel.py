"""cancel: end a waiting job; request the end of a running one."""

import pytest

from sublet.errors import Changed, NotFound, WrongState
from sublet.protocol import keys

FORTNIGHT = 14 * 86_400_000


async def test_a_queued_job_is_cancelled_at_once(desk):
    await desk.submit("a", "b")
    assert await desk.operate("cancel", "a") == "cancelled"
    assert desk.state("a") == "cancelled"
    job = desk.job("a")
    assert desk.score("cancelled", "a") - int(job["finished_at"]) == FORTNIGHT
    assert (job["ops"], job["op"]) == ("1", "cancel 0 cancelled")
    assert desk.counter("cancelled") == 1
    assert desk.events()[-1] == ("a", "cancelled", "cancel")
    assert [lease.id for lease in await desk.claim(2)] == ["b"]


async def test_a_scheduled_job_is_cancelled_at_once(desk):
    await desk.submit("a", rules="delay=1000")
    assert await desk.operate("cancel", "a") == "cancelled"
    desk.elapse(2)
    await desk.reap()
    assert desk.state("a") == "cancelled"


async def test_a_job_between_two_tries_can_be_cancelled(desk):
    await desk.fail(await desk.running("a"), message="no luck")
    assert await desk.operate("cancel", "a") == "cancelled"
    assert "no luck" in desk.job("a")["attempt:1"]


async def test_a_cancel_of_a_running_job_requests_its_end(desk):
    lease = await desk.running("a")
    assert await desk.operate("cancel", "a") == "requested"
    assert desk.state("a") == "running"
    assert abs(int(desk.job("a")["cancel_requested_at"]) - desk.now()) < 5000
    assert await desk.heartbeat(lease) == "CANCEL_REQUESTED"
    assert await desk.fail(lease, "cancelled") == "cancelled"
    assert "cancel_requested_at" not in desk.job("a")


async def test_a_cancel_wins_when_the_worker_dies(desk):
    await desk.running("a")
    await desk.operate("cancel", "a")
    desk.elapse(30)
    assert (await desk.reap())[0] == 1
    assert desk.state("a") == "cancelled"
    assert desk.job("a")["attempt:1"].endswith(" lease_expired")


async def test_a_cancelled_job_is_kept_for_its_retention_if_that_is_longer(desk):
    await desk.submit("a", "b", rules=f"retention={2 * FORTNIGHT}")
    (lease,) = await desk.claim(1)
    await desk.operate("cancel", "a")
    await desk.release(lease)
    await desk.operate("cancel", "b")
    for job_id in "ab":
        assert desk.score("cancelled", job_id) - int(desk.job(job_id)["finished_at"]) == 2 * FORTNIGHT


# the revision


async def test_a_cancel_carries_the_revision_that_its_caller_read(desk):
    await desk.submit("a")
    before = desk.everything()
    with pytest.raises(Changed, match="job a is at revision 0, not 1: read it again"):
        await desk.operate("cancel", "a", 1)
    assert desk.everything() == before


async def test_a_claim_changes_the_revision(desk):
    await desk.running("a")
    with pytest.raises(Changed, match="at revision 1, not 0"):
        await desk.operate("cancel", "a", 0)
    assert await desk.operate("cancel", "a", 1) == "requested"


@pytest.mark.parametrize("running", [False, True])
async def test_a_repeated_cancel_gets_the_same_reply_and_changes_nothing(desk, running):
    await desk.submit("a")
    if running:
        await desk.claim()
    revision = desk.revision("a")
    answer = await desk.operate("cancel", "a", revision)
    before = desk.everything()
    assert await desk.operate("cancel", "a", revision) == answer
    assert desk.everything() == before


async def test_a_cancel_repeated_after_a_later_change_is_refused(desk):
    await desk.submit("a")
    await desk.operate("cancel", "a", 0)
    await desk.operate("retry", "a", 1)
    before = desk.everything()
    with pytest.raises(Changed):
        await desk.operate("cancel", "a", 0)
    assert desk.everything() == before


async def test_a_reply_to_cancel_is_not_repeated_for_another_verb(desk):
    await desk.submit("a")
    await desk.operate("cancel", "a", 0)
    for verb in ("retry", "promote"):
        with pytest.raises(Changed):
            await desk.operate(verb, "a", 0)


async def test_a_running_job_may_be_cancelled_twice(desk):
    lease = await desk.running("a")
    assert await desk.operate("cancel", "a") == "requested"
    assert await desk.operate("cancel", "a") == "requested"
    assert desk.revision("a") == 3
    assert await desk.fail(lease) == "cancelled"


# refusals


@pytest.mark.parametrize("end", ["complete", "fail"])
async def test_a_finished_job_cannot_be_cancelled(desk, end):
    lease = await desk.running("a", rules="tries=1")
    await getattr(desk, end)(lease)
    before = desk.everything()
    with pytest.raises(WrongState, match=r"job a is (completed|dead)"):
        await desk.operate("cancel", "a")
    assert desk.everything() == before


async def test_a_cancelled_job_cannot_be_cancelled_again(desk):
    await desk.submit("a")
    await desk.operate("cancel", "a")
    with pytest.raises(WrongState, match="job a is cancelled"):
        await desk.operate("cancel", "a")


async def test_an_unknown_job_is_not_found(desk):
    with pytest.raises(NotFound, match="no job nobody"):
        await desk.operate("cancel", "nobody")


# the store


async def test_a_store_reads_the_revision_before_a_cancel(desk, store):
    await desk.running("0-a")
    assert await store.follow(store.operations.cancel("0-a")) == "requested"
    with pytest.raises(Changed):
        await store.follow(store.operations.cancel("0-a", revision=0))
    with pytest.raises(NotFound):
        await store.follow(store.operations.cancel("0-nobody"))


async def test_waiting_clients_are_notified(desk):
    await desk.submit("a")
    await desk.watch("a")
    with desk.raw.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(keys.ended(desk.base))
        pubsub.get_message(timeout=1)
        await desk.operate("cancel", "a")
        assert pubsub.get_message(timeout=1)["data"] == "a"
