"""The effects of a jump of the server's clock, verb by verb. They prove the sentences of `docs/explanation/clock.md`.

To let time pass after a jump backward, these tests jump forward again.
"""

import uuid

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.protocol import keys
from tests.conftest import Place

pytest_plugins = ["tests.support.clocks"]
HOUR, DAY = 3600.0, 86_400.0
JUMPS = [-DAY, -HOUR, HOUR, DAY]


@pytest.fixture
def place(clock):
    return Place(Settings(redis_url=clock.url, namespace=f"test-{uuid.uuid4().hex[:12]}"), None)


# forward: everything with a deadline ends, starts or is deleted early


async def test_a_forward_jump_ends_every_lease_and_the_next_one_is_fenced(desk, clock):
    first = await desk.running("a", lease=30)
    clock.jump(HOUR)
    second = await desk.take("a")
    assert (second.attempt, second.recovered, second.fence > first.fence) == (2, "lease_expired", True)
    before = desk.everything()
    stale = [desk.heartbeat(first), desk.complete(first), desk.fail(first), desk.release(first)]
    assert [await answer for answer in stale] == ["LEASE_LOST"] * 4
    assert desk.everything() == before
    assert await desk.complete(second) == "completed"


async def test_the_first_outcome_is_accepted_at_any_clock(desk, clock):
    lease = await desk.running("a", lease=30)
    clock.jump(DAY)
    assert await desk.complete(lease) == "completed"


async def test_a_heartbeat_before_maintenance_keeps_the_job_within_its_timeout(desk, clock):
    lease = await desk.running("a", lease=30)
    clock.jump(60)
    assert 0 < await desk.heartbeat(lease) - desk.now() <= 30_000
    assert await desk.reap() == (0, 0, False)
    clock.jump(HOUR)
    assert await desk.heartbeat(lease) < desk.now(), (
        "by the stored time claimed an hour ago, with a timeout of 5 min"
    )
    assert await desk.reap() == (1, 0, False)


async def test_without_a_timeout_any_heartbeat_before_maintenance_keeps_the_job(desk, clock):
    lease = await desk.running("a", rules="timeout=none", lease=30)
    clock.jump(DAY)
    assert 0 < await desk.heartbeat(lease) - desk.now() <= 30_000


async def test_a_delay_ends_early_and_a_moment_is_compared_with_the_servers_clock(desk, clock):
    await desk.submit("delayed", rules=f"delay={HOUR * 1000:.0f}")
    await desk.submit("dated", rules=f"at={desk.now() + 2 * HOUR * 1000:.0f}")
    clock.jump(HOUR + 1)
    assert [lease.id for lease in await desk.claim(5)] == ["delayed"]


async def test_only_finished_jobs_are_deleted_early(desk, clock):
    await desk.complete(await desk.running("done"))
    await desk.submit("waits")
    held = await desk.running("held", rules="priority=1")
    clock.jump(DAY + 60)
    assert await desk.prune() == (1, False)
    clock.jump(0)
    assert [desk.state(job_id) for job_id in ("done", "waits", "held")] == [None, "queued", "running"]
    assert await desk.complete(held) == "completed"


async def test_a_claim_repeated_after_a_jump_is_new_and_the_first_is_fenced(desk, clock):
    await desk.submit("a", "b")
    first = await desk.take("a", claim_id="x" * 22)
    assert await desk.claim(claim_id="x" * 22) == [first]
    clock.jump(15)
    second = await desk.take("b", claim_id="x" * 22)
    assert second.token != first.token
    clock.jump(31)
    again = await desk.take("a")
    assert (again.attempt, await desk.complete(first), await desk.complete(again)) == (
        2,
        "LEASE_LOST",
        "completed",
    )


async def test_a_keys_window_ends_early(desk, clock):
    rules = "key=k window=60000"
    await desk.submit("a", rules=rules)
    await desk.complete(await desk.take("a"))
    assert [each.created for each in await desk.submit("b", rules=rules)] == [False]
    clock.jump(61)
    assert [each.created for each in await desk.submit("b", rules=rules)] == [True]


async def test_a_key_without_a_window_does_not_depend_on_the_clock(desk, clock):
    await desk.submit("a", rules="key=k")
    for jump in JUMPS:
        clock.jump(jump)
        assert [each.id for each in await desk.submit("b", rules="key=k")] == ["a"]


# backward: everything with a deadline is late by the jump, and nothing else is


async def test_a_dead_workers_lease_ends_late_by_the_jump_and_no_later(desk, clock):
    await desk.running("a", lease=30)
    clock.jump(-HOUR)
    assert await desk.reap() == (0, 0, False)
    clock.jump(25)
    assert await desk.claim() == []
    clock.jump(31)
    assert (await desk.take("a")).attempt == 2


async def test_a_heartbeat_corrects_the_lease_after_a_jump(desk, clock):
    lease = await desk.running("a", lease=30)
    clock.jump(-HOUR)
    assert 0 < await desk.heartbeat(lease) - desk.now() <= 30_000
    clock.jump(-HOUR + 31)
    assert (await desk.take("a")).attempt == 2


async def test_a_new_lease_after_a_backward_jump_has_the_normal_length(desk, clock):
    clock.jump(-HOUR)
    await desk.running("a", lease=30)
    clock.jump(-HOUR + 31)
    assert (await desk.take("a")).attempt == 2


async def test_a_scheduled_job_is_late_by_the_jump_unless_promoted(desk, clock):
    await desk.submit("a", "b", rules="delay=1000")
    clock.jump(-HOUR)
    await desk.submit("new", rules="delay=1000")
    clock.jump(-HOUR + 2)
    assert await desk.complete(await desk.take("new")) == "completed"
    assert await desk.claim() == []
    assert await desk.operate("promote", "a") == "queued"
    assert await desk.complete(await desk.take("a")) == "completed"
    clock.jump(2)
    assert (await desk.take("b")).attempt == 1


async def test_a_finished_job_is_kept_longer_by_the_jump(desk, clock):
    await desk.complete(await desk.running("a", rules="retention=60000"))
    clock.jump(-HOUR)
    assert await desk.prune() == (0, False)
    clock.jump(61)
    assert await desk.prune() == (1, False)


async def test_a_keys_window_lasts_longer_by_the_jump(desk, clock):
    rules = "key=k window=60000"
    await desk.submit("a", rules=rules)
    await desk.complete(await desk.take("a"))
    clock.jump(-HOUR)
    clock.jump(-HOUR + 61)
    assert [each.created for each in await desk.submit("b", rules=rules)] == [False]
    clock.jump(61)
    assert [each.created for each in await desk.submit("b", rules=rules)] == [True]


async def test_an_alarm_moved_far_ahead_by_a_jump_does_not_hide_an_earlier_moment(desk, clock):
    await desk.submit("far", rules="delay=1500")
    assert (await desk.ask(worker="dead")).next_in < 2
    clock.jump(-HOUR)
    assert desk.raw.pttl(keys.alarm(desk.base)) > (HOUR - 10) * 1000
    assert (await desk.ask(worker="w")).next_in == 2, "workers poll every 2 s"
    await desk.submit("near", rules="delay=1000")
    assert (await desk.ask(worker="w")).next_in <= 1
    assert desk.raw.get(keys.alarm(desk.base)).endswith(" w")


async def test_an_alarm_of_a_dead_worker_delays_its_job_by_one_interval(desk, clock):
    await desk.submit("far", rules="delay=1500")
    await desk.ask(worker="dead")
    clock.jump(-HOUR)
    clock.jump(0.5)
    assert (await desk.ask(worker="w")).next_in == 2, "the dead worker has the alarm: this one polls in 2 s"
    clock.jump(2.5)
    assert [lease.id for lease in await desk.claim(worker="w")] == ["far"]


# both ways


async def test_fences_grow_and_tokens_differ_over_all_jumps(desk, clock):
    leases = []
    for number, jump in enumerate([0, DAY, -DAY, HOUR, -HOUR, 0]):
        clock.jump(jump)
        leases.append(await desk.running(f"j{number}", rules=f"priority={number}"))
    fences = [lease.fence for lease in leases]
    assert fences == sorted(set(fences))


async def test_after_a_failover_that_lost_a_lease_a_backward_jump_may_repeat_a_fence_but_no_token(
    desk, clock
):
    """The only case in which a later attempt's fence is not higher; the claim id in the token still distinguishes them."""
    clock.jump(HOUR)
    await desk.submit("a")
    with redis.Redis.from_url(clock.url) as client:
        before = {key: client.dump(key) for key in client.scan_iter(match=f"{desk.base}*")}
        lost = await desk.take("a")
        clock.jump(0)
        client.delete(*client.scan_iter(match=f"{desk.base}*"))
        for key, value in before.items():
            client.restore(key, 0, value)
    held = await desk.take("a")
    assert held.fence < lost.fence
    assert (await desk.complete(lost), await desk.complete(held)) == ("LEASE_LOST", "completed")


async def test_events_keep_their_order_over_all_jumps(desk, clock):
    for number, jump in enumerate([DAY, -DAY, HOUR, -HOUR, 0]):
        clock.jump(jump)
        await desk.submit(f"j{number}")
    assert [jobs for jobs, _, _ in desk.events()] == [f"j{number}" for number in range(5)]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_request_repeated_after_a_jump_has_no_second_effect(desk, clock, jump):
    await desk.submit("a", "b", "c", "d", "e", rules=f"retention={30 * DAY * 1000:.0f}")
    failed, released, done, _, _ = await desk.claim(5, lease=2 * DAY)

    async def send():
        created = [each.created for each in await desk.submit("a", "b", "c", "d", "e", rules="key=k")]
        endings = [await desk.fail(failed), await desk.release(released, 5), await desk.complete(done)]
        return [created, endings, await desk.operate("cancel", "d", 1)]

    first, before = await send(), lasting(desk)
    clock.jump(jump)
    assert await send() == first
    assert lasting(desk) == before


def lasting(desk):
    """All stored data, except hints that expire."""
    hints = (keys.alarm(desk.base), f"{desk.base}:claim:")
    return {key: value for key, value in desk.everything().items() if not key.startswith(hints)}
