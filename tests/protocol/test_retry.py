"""retry: queue a dead or cancelled job again with all its tries."""

import pytest

from sublet.errors import Changed, KeyTaken, NotFound, WrongState
from sublet.protocol import keys


async def make_dead(desk, job_id, rules=""):
    lease = await desk.running(job_id, rules=rules)
    await desk.fail(lease, "Boom", "no luck", again=False)
    return lease


async def test_a_dead_job_is_revived_with_all_its_tries(desk):
    await desk.submit("a", rules="tries=2 backoff=0:1:0", payload=b"precious")
    for _ in range(2):
        await desk.fail(await desk.take("a"))
    assert await desk.operate("retry", "a") == "queued"
    assert desk.state("a") == "queued"
    assert "finished_at" not in desk.job("a")
    assert desk.events()[-1] == ("a", "queued", "retry")
    lease = await desk.take("a")
    assert (lease.attempt, lease.payload, desk.job("a")["tries_left"]) == (3, b"precious", "1")


async def test_a_dead_job_keeps_its_large_payload(desk):
    await desk.submit("a", payload=b"x" * 5000)
    await desk.fail(await desk.take("a"), again=False)
    await desk.operate("retry", "a")
    assert (await desk.take("a")).payload == b"x" * 5000


async def test_a_cancelled_job_is_revived(desk):
    await desk.submit("a")
    await desk.operate("cancel", "a")
    assert await desk.operate("retry", "a") == "queued"
    assert (await desk.take("a")).attempt == 1


async def test_a_job_cancelled_while_it_ran_is_revived_without_its_cancel(desk):
    lease = await desk.running("a")
    await desk.operate("cancel", "a")
    await desk.release(lease)
    await desk.operate("retry", "a")
    lease = await desk.take("a")
    assert isinstance(await desk.heartbeat(lease), int)
    assert await desk.release(lease) == "queued"


async def test_a_revived_job_goes_to_the_end_of_its_priority(desk):
    await make_dead(desk, "a", "priority=5")
    await desk.submit("b", rules="priority=5")
    await desk.submit("c")
    await desk.operate("retry", "a")
    assert desk.members("queue:q") == ["b", "a", "c"]


async def test_a_revived_job_wakes_a_worker(desk):
    await make_dead(desk, "a")
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.operate("retry", "a")
    assert desk.wake_ups() == 1


async def test_a_revived_job_keeps_its_attempts(desk):
    await make_dead(desk, "a")
    await desk.operate("retry", "a")
    await desk.fail(await desk.take("a"))
    assert "no luck" in desk.job("a")["attempt:1"]
    assert "attempt:2" in desk.job("a")


async def test_a_retry_resets_the_count_of_lost_leases(desk):
    lease = await desk.running("a", rules="tries=1")
    desk.elapse(30)
    await desk.reap()
    assert desk.state("a") == "dead"
    await desk.operate("retry", "a")
    lease = await desk.take("a")
    desk.raw.hset(keys.job(desk.base, "a"), "tries_left", 5)
    desk.elapse(30)
    await desk.reap()
    assert desk.state("a") == "queued"
    assert desk.job("a")["streak"] == "lease_expired 1"
    assert await desk.complete(lease) == "LEASE_LOST"


async def test_a_token_from_before_the_revival_is_refused(desk):
    lease = await make_dead(desk, "a")
    await desk.operate("retry", "a")
    assert not {"token", "ended"} & set(desk.job("a"))
    before = desk.everything()
    for verb in ("heartbeat", "complete", "fail", "release"):
        assert await getattr(desk, verb)(lease) == "LEASE_LOST"
        assert await getattr(desk, verb)(lease._replace(token="")) == "LEASE_LOST"
    assert desk.everything() == before


# the key


async def test_a_revived_job_takes_its_key_again(desk):
    await make_dead(desk, "a", "key=k")
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) is None
    await desk.operate("retry", "a")
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) == "a"
    await desk.complete(await desk.take("a"))
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) is None


async def test_a_job_whose_key_is_taken_stays_dead(desk):
    await make_dead(desk, "a", "key=k")
    await desk.submit("b", rules="key=k")
    before = desk.everything()
    with pytest.raises(KeyTaken, match="job b holds the key k of queue q"):
        await desk.operate("retry", "a")
    assert desk.everything() == before


async def test_a_key_with_a_window_is_taken_again_for_a_window(desk):
    await make_dead(desk, "a", "key=k window=90000")
    desk.elapse(100)
    await desk.operate("retry", "a")
    assert 80_000 < desk.raw.pttl(keys.lock(desk.base, "q", "k")) <= 90_000


async def test_a_job_within_its_own_window_is_revived(desk):
    await make_dead(desk, "a", "key=k window=90000")
    desk.elapse(10)
    assert await desk.operate("retry", "a") == "queued"
    assert 70_000 < desk.raw.pttl(keys.lock(desk.base, "q", "k")) <= 80_000


# the revision


async def test_a_repeated_retry_gets_the_same_reply_and_changes_nothing(desk):
    await make_dead(desk, "a")
    await desk.operate("retry", "a", 1)
    before = desk.everything()
    assert await desk.operate("retry", "a", 1) == "queued"
    assert desk.everything() == before


async def test_a_retry_repeated_after_a_later_change_is_refused(desk):
    await make_dead(desk, "a")
    await desk.operate("retry", "a", 1)
    await desk.fail(await desk.take("a"), again=False)
    before = desk.everything()
    with pytest.raises(Changed, match="job a is at revision 3, not 1"):
        await desk.operate("retry", "a", 1)
    assert desk.everything() == before


async def test_a_retry_with_an_old_revision_is_refused(desk):
    await make_dead(desk, "a")
    with pytest.raises(Changed):
        await desk.operate("retry", "a", 0)


# refusals


async def test_only_dead_or_cancelled_jobs_are_revived(desk):
    await desk.submit("late", rules="delay=1000")
    await desk.complete(await desk.running("done"))
    await desk.running("busy")
    await desk.submit("waiting")
    before = desk.everything()
    for job_id, state in [
        ("late", "scheduled"),
        ("done", "completed"),
        ("busy", "running"),
        ("waiting", "queued"),
    ]:
        with pytest.raises(WrongState, match=f"job {job_id} is {state}"):
            await desk.operate("retry", job_id)
    assert desk.everything() == before


async def test_an_unknown_job_is_not_found(desk):
    with pytest.raises(NotFound):
        await desk.operate("retry", "nobody")
