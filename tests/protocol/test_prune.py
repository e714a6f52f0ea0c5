"""prune: delete finished jobs past their retention, or too many; and the share of it that `complete` and others do."""

import pytest

from sublet.model import Failure
from sublet.protocol import keys, verbs

DAY = 86_400


async def finish(desk, job_id, state, rules=""):
    lease = await desk.running(job_id, rules=rules)
    if state == "completed":
        await desk.complete(lease)
    elif state == "dead":
        await desk.fail(lease, again=False)
    else:
        await desk.operate("cancel", job_id)
        await desk.release(lease)
    desk.elapse(0.002)  # jobs that end in the same millisecond have no order


@pytest.mark.parametrize(("state", "days"), [("completed", 1), ("dead", 14), ("cancelled", 14)])
async def test_a_finished_job_is_deleted_after_its_retention_and_not_before(desk, state, days):
    await finish(desk, "a", state)
    desk.elapse(days * DAY - 2)
    assert await desk.prune() == (0, False)
    assert desk.state("a") == state
    desk.elapse(2)
    assert await desk.prune() == (1, False)
    assert desk.state("a") is None
    assert desk.job("a") == {}


@pytest.mark.parametrize("state", ["dead", "cancelled"])
async def test_a_longer_retention_applies_to_dead_and_cancelled_jobs_too(desk, state):
    await finish(desk, "a", state, rules=f"retention={30 * DAY * 1000}")
    desk.elapse(29 * DAY)
    assert await desk.prune() == (0, False)
    desk.elapse(DAY)
    assert await desk.prune() == (1, False)


async def test_a_shorter_retention_applies_to_completed_jobs_only(desk):
    await finish(desk, "a", "completed", rules="retention=60000")
    await finish(desk, "b", "dead", rules="retention=60000")
    desk.elapse(61)
    assert await desk.prune() == (1, False)
    assert desk.state("b") == "dead"


@pytest.mark.parametrize("state", ["completed", "dead"])
async def test_a_long_retention_does_not_displace_the_jobs_of_others(desk, state):
    """Above the number kept, the oldest jobs are deleted, about: not those with the shortest retention."""
    await desk.operate_queue("configure", "*", None, f"{state}=20")
    for i in range(20):
        await finish(desk, f"long{i}", state, rules=f"retention={366 * DAY * 1000}")
    for i in range(40):
        await finish(desk, f"j{i}", state)
        assert desk.state(f"j{i}") == state, "a result is not deleted by the call that stores it"
        assert len(desk.members(state)) == 20
    assert sum(one.startswith("j2") or one.startswith("j3") for one in desk.members(state)) >= 12


async def test_an_unfinished_job_is_never_deleted(desk):
    await desk.submit("a")
    await desk.submit("b", rules="delay=3600000")
    desk.elapse(100 * DAY)
    assert await desk.prune() == (0, False)
    assert [lease.id for lease in await desk.claim(3)] == ["a", "b"]


async def test_a_prune_stops_at_its_limit_and_reports_whether_more_remains(desk):
    for i, state in enumerate(["completed", "completed", "dead", "cancelled", "dead"]):
        await finish(desk, f"j{i}", state)
    desk.elapse(15 * DAY)
    assert await desk.prune(2) == (2, True)
    assert await desk.prune(2) == (2, True)
    assert await desk.prune(2) == (1, False)
    assert await desk.prune(2) == (0, False)
    assert desk.raw.keys(f"{desk.base}:job:*") == []


async def test_the_id_of_a_deleted_job_may_be_used_again(desk):
    await finish(desk, "a", "completed")
    desk.elapse(2 * DAY)
    await desk.prune()
    assert (await desk.submit("a"))[0].created
    assert (await desk.take("a")).attempt == 1


async def test_a_revived_job_is_not_deleted(desk):
    await finish(desk, "a", "dead")
    await desk.operate("retry", "a")
    desk.elapse(15 * DAY)
    assert await desk.prune() == (0, False)
    assert desk.state("a") == "queued"


@pytest.mark.real_server
@pytest.mark.parametrize("state", ["completed", "dead", "cancelled"])
async def test_over_the_count_the_oldest_jobs_are_deleted_first(desk, state):
    desk.raw.zadd(keys.structure(desk.base, state), {f"j{i}": 8e12 + i for i in range(100_003)})
    assert await desk.prune(2) == (2, True)
    assert await desk.prune(2) == (1, False)
    assert desk.raw.zrange(keys.structure(desk.base, state), 0, 0) == ["j3"]
    counted = {"completed": "forgotten_results"}.get(state, "forgotten")
    assert {name: desk.counter(name) for name in ("forgotten", "forgotten_results")} == {
        "forgotten": 0, "forgotten_results": 0, counted: 3,
    }  # fmt: skip


@pytest.mark.parametrize("state", ["dead", "cancelled"])
async def test_dead_and_cancelled_jobs_stay_within_their_count_without_a_prune(desk, state):
    await desk.operate_queue("configure", "*", 0, f"{state}=3")
    for i in range(10):
        await finish(desk, f"j{i}", state)
    assert desk.members(state) == ["j7", "j8", "j9"]
    assert sorted(desk.raw.keys(f"{desk.base}:job:*")) == [keys.job(desk.base, f"j{i}") for i in (7, 8, 9)]
    assert (desk.counter("forgotten"), desk.counter(state)) == (7, 10)
    assert await desk.prune() == (0, False)


async def test_jobs_made_dead_by_lost_leases_stay_within_their_count(desk):
    await desk.operate_queue("configure", "*", 0, "dead=2")
    for i in range(5):
        await desk.running(f"j{i}", rules="tries=1", lease=1)
    desk.elapse(2)
    await desk.reap()
    assert len(desk.members("dead")) == 2 == len(desk.raw.keys(f"{desk.base}:job:*"))


async def test_a_failed_batch_keeps_the_allowed_number_and_repeats_its_replies(desk):
    await desk.operate_queue("configure", "*", 0, "dead=2")
    await desk.submit(*"abcde")
    failures = [Failure(lease, "Boom", "", "", again=False) for lease in await desk.claim(5)]
    assert await desk.run(verbs.fail(desk.base, [*failures, *failures])) == ["dead"] * 10
    assert desk.members("dead") == ["d", "e"]
    assert await desk.run(verbs.fail(desk.base, failures)) == ["NOT_FOUND"] * 3 + ["dead"] * 2


async def test_with_a_count_of_zero_the_last_job_is_kept_until_a_prune(desk):
    """So a waiter can still read how it ended."""
    await desk.operate_queue("configure", "*", 0, "dead=0")
    await finish(desk, "a", "dead")
    await finish(desk, "b", "dead")
    assert desk.members("dead") == ["b"]
    assert desk.job("b")["state"] == "dead"
    assert await desk.prune() == (1, False)
    assert desk.job("b") == {}


async def test_a_revived_job_displaces_no_other_job(desk):
    await desk.operate_queue("configure", "*", 0, "dead=2")
    for name in "abc":
        await finish(desk, name, "dead")
    await desk.operate("retry", "b")
    assert (desk.members("dead"), desk.state("b")) == (["c"], "queued")
    await desk.fail(await desk.take("b"), again=False)
    assert desk.members("dead") == ["c", "b"], "it is dead again, and the newest"


async def test_a_lowered_limit_is_reached_in_steps(desk):
    for i in range(6):
        await finish(desk, f"j{i}", "dead")
    await desk.operate_queue("configure", "*", 0, "dead=1")
    await finish(desk, "done", "completed")
    assert desk.members("dead") == ["j2", "j3", "j4", "j5"], "a completion deletes two"
    assert await desk.prune() == (3, False)
    assert desk.members("dead") == ["j5"]


# empty queues


def name_queues(desk, count, settings=""):
    desk.raw.hset(keys.queues(desk.base), mapping={f"tenant-{i}": settings for i in range(count)})


@pytest.mark.real_server
async def test_of_very_many_queues_empty_ones_are_deleted(desk):
    """For example a queue per tenant: most are used once."""
    name_queues(desk, 10_100, "1 configure jobs=5")
    await desk.submit("a", queue="waits")
    await desk.submit("b", queue="scheduled", rules="delay=1000000")
    await desk.submit("c", queue="runs")
    (lease,) = await desk.claim(queues=("runs",))
    await desk.operate_queue("pause", "paused")
    kept = set(desk.raw.hkeys(keys.queues(desk.base)))
    desk.raw.hset(keys.queues(desk.base), mapping={f"idle-{i}": "" for i in range(300)})
    desk.raw.lpush(keys.wake(desk.base, "idle-7"), "1")
    await sweep(desk)
    assert set(desk.raw.hkeys(keys.queues(desk.base))) == kept, "those with settings, or with jobs"
    assert not desk.raw.exists(keys.wake(desk.base, "idle-7"))
    assert await desk.complete(lease) == "completed"
    assert (await desk.submit("again", queue="idle-7"))[0].created
    assert [one.id for one in await desk.claim(queues=("idle-7",))] == ["again"]


async def sweep(desk):
    """Prune until all queues were checked."""
    for _ in range(2000):
        await desk.prune()
        if desk.raw.hget(desk.base, "swept") == "0":
            return
    raise AssertionError("it never ends")


@pytest.mark.real_server
async def test_deletion_of_queues_stops_below_10_000(desk):
    name_queues(desk, 10_130)
    for _ in range(20):
        if not (await desk.prune())[1]:
            break
    kept = desk.raw.hlen(keys.queues(desk.base))
    assert 9_900 < kept <= 10_000
    assert await desk.prune() == (0, False)
    assert desk.raw.hlen(keys.queues(desk.base)) == kept


@pytest.mark.real_server
async def test_the_counters_of_a_deleted_queue_are_added_to_a_common_name(desk):
    for i in range(3):
        await desk.submit(f"j{i}", queue=f"once-{i}")
        (lease,) = await desk.claim(queues=(f"once-{i}",))
        await (desk.complete(lease) if i else desk.fail(lease, again=False))
    before, queues = totals(desk), keys.queues(desk.base)
    for _ in range(500):
        if not any(desk.raw.hexists(queues, f"once-{i}") for i in range(3)):
            break
        if desk.raw.hlen(queues) <= 10_000:
            name_queues(desk, 10_150)
        await desk.prune()
    assert not any(desk.raw.hexists(queues, f"once-{i}") for i in range(3))
    assert totals(desk) == before
    assert {name.split()[0] for name in desk.raw.hkeys(keys.counts(desk.base))} == {"*"}


def totals(desk):
    """The counts, summed over all queues."""
    sums = {}
    for name, count in desk.raw.hgetall(keys.counts(desk.base)).items():
        what = name.partition(" ")[2]
        sums[what] = sums.get(what, 0) + int(count)
    return {what: count for what, count in sums.items() if count}


@pytest.mark.real_server
async def test_completions_delete_queues_without_a_tick(desk):
    name_queues(desk, 10_000)
    for i in range(300):
        await desk.submit(f"j{i}", queue=f"once-{i}")
        (lease,) = await desk.claim(queues=(f"once-{i}",))
        await desk.complete(lease)
    assert desk.raw.hlen(keys.queues(desk.base)) < 10_050


@pytest.mark.real_server
async def test_an_invalid_cursor_is_restarted(desk):
    name_queues(desk, 10_200)
    desk.raw.hset(desk.base, "swept", "nonsense")
    await desk.prune()
    await desk.prune()
    assert desk.raw.hlen(keys.queues(desk.base)) < 10_200


async def test_an_id_without_a_job_is_dropped(desk):
    desk.raw.zadd(keys.structure(desk.base, "dead"), {"ghost": 1})
    assert await desk.prune() == (1, False)
    assert desk.members("dead") == []


async def test_a_store_prunes_and_returns_the_counts(desk, store):
    await finish(desk, "a", "completed")
    desk.elapse(2 * DAY)
    assert await store.follow(store.operations.prune()) == (1, False)
