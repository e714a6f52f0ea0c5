"""Flow control: places, tokens and turns of a queue's groups."""

import asyncio

import pytest

from sublet.errors import Invalid
from sublet.model import Failure
from sublet.protocol import flow, keys, verbs


async def limit(desk, settings, queue="q"):
    return await desk.operate_queue("configure", queue, None, settings)


async def tune(desk, group, settings, queue="q"):
    return await desk.operate_queue("group", queue, None, group, settings)


async def fill(desk, **groups):
    """Submit this many jobs of each group, named after it: a0, a1, …"""
    for group, n in groups.items():
        await desk.submit(*(f"{group}{i}" for i in range(n)), rules=f"group={group}")


def held(desk, group=""):
    """Who has a place: of the queue, or of a group."""
    if group:
        return set(desk.raw.smembers(keys.group_places(desk.base, "q", group)))
    return set(desk.raw.hkeys(keys.places(desk.base, "q")))


def traces(desk):
    """The keys of flow control that are left."""
    kinds = ("waiting", "grouped", "turns", "full", "tokens", "places", "tat")
    return sorted(
        key for key in desk.everything() if key.removeprefix(desk.base + ":").split(":")[0] in kinds
    )


async def ids(desk, n=1, **how):
    return [lease.id for lease in await desk.claim(n, **how)]


# turns


async def test_groups_take_turns(desk):
    await fill(desk, a=4, b=2, c=1)
    assert await ids(desk, 7) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


async def test_turns_go_on_where_the_last_claim_ended(desk):
    await fill(desk, a=3, b=3)
    assert [await ids(desk) for _ in range(6)] == [["a0"], ["b0"], ["a1"], ["b1"], ["a2"], ["b2"]]


async def test_a_group_that_comes_later_neither_waits_for_the_others_nor_overtakes_them_all(desk):
    await fill(desk, a=50)
    await ids(desk, 20)
    await fill(desk, b=10)
    assert sorted(name[0] for name in await ids(desk, 10)) == ["a"] * 5 + ["b"] * 5


async def test_a_group_that_submits_one_job_at_a_time_does_not_starve_another(desk):
    await fill(desk, z=10)
    await ids(desk)
    seen = []
    for i in range(10):
        await desk.submit(f"b{i}", rules="group=b")
        seen += [name[0] for name in await ids(desk)]
    assert seen.count("b") in (4, 5, 6)


async def test_a_share_gives_a_group_more_turns(desk):
    await tune(desk, "a", "share=3")
    await fill(desk, a=40, b=40)
    got = await ids(desk, 40)
    assert sum(name[0] == "a" for name in got) == 30


async def test_priority_decides_within_a_group_and_between_heads(desk):
    await fill(desk, a=2, b=2)
    await desk.submit("urgent", rules="group=b priority=5")
    await desk.submit("late", rules="group=a priority=-5")
    assert await ids(desk, 6) == ["urgent", "a0", "a1", "b0", "b1", "late"]


async def test_jobs_without_a_group_take_turns_with_groups(desk):
    await desk.submit("p0", "p1", "p2")
    await fill(desk, a=3)
    assert sorted(await ids(desk, 2)) == ["a0", "p0"]
    assert set(await ids(desk, 10)) == {"a1", "a2", "p1", "p2"}


async def test_a_queued_job_of_a_group_stands_in_the_groups_set_and_leaves_nothing(desk):
    await fill(desk, a=2)
    assert (desk.members("grouped:q"), desk.members("waiting:q|a"), desk.state("a0")) == (
        ["a0", "a1"],
        ["a0", "a1"],
        "queued",
    )
    for lease in await desk.claim(2):
        await desk.complete(lease)
    assert traces(desk) == []


# places


async def test_a_queue_runs_as_many_jobs_as_its_limit(desk):
    await limit(desk, "concurrency=2")
    await desk.submit("a", "b", "c")
    first, _ = await desk.claim(9)
    assert await ids(desk, 9) == []
    await desk.complete(first)
    assert await ids(desk, 9) == ["c"]


async def test_a_group_runs_as_many_jobs_as_its_limit_and_the_others_go_on(desk):
    await limit(desk, "group_concurrency=1")
    await fill(desk, a=3, b=2)
    first, second = await desk.claim(9)
    assert (first.id, second.id) == ("a0", "b0")
    await desk.complete(first)
    assert await ids(desk, 9) == ["a1"]


async def test_a_groups_own_limit_is_used_before_that_of_the_queue(desk):
    await limit(desk, "group_concurrency=1")
    await tune(desk, "a", "concurrency=3")
    await fill(desk, a=5, b=5)
    assert sorted(await ids(desk, 9)) == ["a0", "a1", "a2", "b0"]


async def settle_complete(desk, lease):
    assert await desk.complete(lease) == "completed"


async def settle_failed(desk, lease):
    assert (await desk.fail(lease)).startswith("scheduled")


async def settle_dead(desk, lease):
    assert await desk.fail(lease, again=False) == "dead"


async def settle_release(desk, lease):
    assert (await desk.release(lease, 60)).startswith("scheduled")


async def settle_cancel(desk, lease):
    await desk.operate("cancel", lease.id)
    assert await desk.fail(lease) == "cancelled"


async def settle_reconcile(desk, lease):
    await desk.reconcile(lease)
    await desk.operate("cancel", lease.id)


async def settle_reaped(desk, lease):
    desk.elapse(31)
    assert await desk.reap() == (1, 0, False)
    await desk.operate("cancel", lease.id)


async def settle_claimed(desk, lease):
    desk.elapse(31)
    await desk.claim(0)
    await desk.operate("cancel", lease.id)


async def settle_deleted(desk, lease):
    desk.raw.delete(keys.job(desk.base, lease.id))
    desk.raw.zrem(keys.structure(desk.base, "running"), lease.id)
    desk.elapse(2)
    await desk.claim(0)


async def settle_repaired(desk, lease):
    desk.raw.hset(keys.job(desk.base, lease.id), "state", "dead")
    await desk.run(verbs.repair(desk.base, "mend", [("running", lease.id)]))


EXITS = [settle_complete, settle_failed, settle_dead, settle_release, settle_cancel, settle_reconcile, settle_reaped,
         settle_claimed, settle_deleted, settle_repaired]  # fmt: skip


@pytest.mark.parametrize("settings", ["concurrency=1", "group_concurrency=1"])
@pytest.mark.parametrize("settle", EXITS)
async def test_every_exit_gives_the_place_back_and_wakes_one_worker(desk, settle, settings):
    await limit(desk, settings)
    await desk.submit("next", "after", rules="group=a")
    lease = await desk.take("next")
    assert (held(desk), held(desk, "a"), await ids(desk)) == ({"next"}, {"next"}, [])
    desk.raw.delete(keys.wake(desk.base, "q"))
    await settle(desk, lease)
    assert (held(desk), held(desk, "a"), desk.wake_ups()) == (set(), set(), 1)
    assert "held" not in desk.job("next")
    assert await ids(desk) == ["after"]


async def test_a_second_return_gives_nothing_back(desk):
    await limit(desk, "concurrency=2")
    await desk.submit("a", "b", "c", "d")
    first, _ = await desk.claim(2)
    for _ in range(3):
        await desk.complete(first)
    assert await ids(desk, 9) == ["c"]


async def test_a_repeated_claim_takes_no_second_place(desk):
    await limit(desk, "concurrency=2")
    await desk.submit("a", "b", "c")
    for _ in range(3):
        assert await ids(desk, 1, claim_id="C" * 22) == ["a"]
    assert (held(desk), await ids(desk, 9)) == ({"a"}, ["b"])


async def test_a_job_taken_before_the_limit_holds_a_place(desk):
    await desk.submit("a", "b", "c")
    first, _ = await desk.claim(2)
    await limit(desk, "concurrency=2")
    assert (held(desk), await ids(desk)) == ({"a", "b"}, [])
    await desk.complete(first)
    assert await ids(desk) == ["c"]


async def test_a_lower_limit_drains_and_a_higher_one_wakes(desk):
    await limit(desk, "concurrency=3")
    await desk.submit("a", "b", "c", "d", "e")
    leases = await desk.claim(3)
    await limit(desk, "concurrency=1")
    for lease in leases[:2]:
        await desk.complete(lease)
        assert await ids(desk) == []
    desk.raw.delete(keys.wake(desk.base, "q"))
    await limit(desk, "concurrency=2")
    assert (desk.wake_ups(), await ids(desk, 9)) == (1, ["d"])


@pytest.mark.parametrize("how", ["group", "queue"])
async def test_a_higher_limit_of_groups_lets_them_go_on(desk, how):
    await limit(desk, "group_concurrency=1")
    await fill(desk, a=3)
    await ids(desk, 9)
    assert await ids(desk) == []
    desk.raw.delete(keys.wake(desk.base, "q"))
    await (tune(desk, "a", "concurrency=2") if how == "group" else limit(desk, "group_concurrency=2"))
    assert (desk.wake_ups(), await ids(desk, 9)) == (1, ["a1"])


async def test_without_its_settings_a_queue_is_plain_again(desk):
    await limit(desk, "concurrency=1")
    await desk.submit("a", "b")
    await desk.complete(await desk.take("a"))
    await limit(desk, "")
    assert (desk.raw.hget(keys.queues(desk.base), "q"), traces(desk)) == ("2 configure", [])
    await desk.submit("c")
    assert await ids(desk, 9) == ["b", "c"]


async def test_a_paused_queue_starts_nothing_and_a_resume_wakes(desk):
    await limit(desk, "concurrency=5")
    await fill(desk, a=1)
    await desk.operate_queue("pause")
    desk.raw.delete(keys.wake(desk.base, "q"))
    assert await ids(desk) == []
    await desk.operate_queue("resume")
    assert (desk.wake_ups(), await ids(desk)) == (1, ["a0"])


async def test_nobody_is_woken_for_a_job_that_may_not_start(desk):
    await limit(desk, "concurrency=1")
    await desk.submit("a")
    await ids(desk)
    await desk.submit("b")
    assert desk.wake_ups() == 0


# tokens


async def test_a_rate_spaces_jobs_and_the_worker_waits_for_the_token(desk):
    await limit(desk, "rate=60 per=60000")
    await desk.submit("a", "b", "c")
    asked = await desk.ask(9)
    assert ([lease.id for lease in asked.leases], 0.9 < asked.next_in <= 1) == (["a"], True)
    assert (await desk.ask(9, worker="other")).next_in == 2
    desk.elapse(1)
    assert await ids(desk, 9) == ["b"]


async def test_a_burst_lets_several_start_and_no_more_than_the_rate_follow(desk):
    await limit(desk, "rate=60 per=60000 burst=3")
    await desk.submit(*(f"j{i}" for i in range(9)))
    assert len(await ids(desk, 9)) == 3
    desk.elapse(2)
    assert len(await ids(desk, 9)) == 2


async def test_a_rate_of_groups_holds_each_back_alone(desk):
    await limit(desk, "group_rate=1 group_per=5000")
    await tune(desk, "b", "rate=2 per=5000 burst=2")
    await fill(desk, a=3, b=3)
    asked = await desk.ask(9)
    assert sorted(lease.id for lease in asked.leases) == ["a0", "b0", "b1"]
    assert asked.next_in == 2
    desk.elapse(4.9)
    asked = await desk.ask(9)
    assert [lease.id for lease in asked.leases] == ["b2"]
    assert 0 < asked.next_in <= 0.1
    desk.elapse(0.1)
    assert await ids(desk, 9) == ["a1"]


async def test_a_cost_takes_tokens_and_one_above_the_burst_starts_with_a_full_bucket(desk):
    await limit(desk, "rate=100 per=1000 burst=100")
    await desk.submit("a", rules="cost=80")
    await desk.submit("b", rules="cost=30")
    await desk.submit("big", rules="cost=500")
    assert await ids(desk, 9) == ["a"]
    desk.elapse(0.11)
    assert await ids(desk, 9) == ["b"]
    desk.elapse(0.5)
    assert await ids(desk, 9) == []
    desk.elapse(0.6)
    assert await ids(desk, 9) == ["big"]
    await desk.submit("c")
    desk.elapse(3)
    assert await ids(desk, 9) == []
    desk.elapse(1.1)
    assert await ids(desk, 9) == ["c"]


async def test_the_real_cost_corrects_the_tokens(desk):
    await limit(desk, "group_rate=100 group_per=1000 group_burst=100")
    await desk.submit("a", "b", rules="group=g cost=100")
    lease = await desk.take("a")
    assert await ids(desk) == []
    desk.raw.delete(keys.wake(desk.base, "q"))
    assert await desk.run(flow.spend(desk.base, [(lease, 0), (lease, 0)])) == ["spent", "spent"]
    assert desk.wake_ups() == 1
    second = await desk.take("b")
    await desk.submit("c", rules="group=g")
    await desk.run(flow.spend(desk.base, [(second, 300)]))
    desk.elapse(1.5)
    assert await ids(desk) == []
    desk.elapse(0.6)
    assert await ids(desk) == ["c"]


async def test_nothing_waits_for_a_token_that_has_come(desk):
    """A worker that takes nothing itself wakes one for the token."""
    await limit(desk, "group_rate=1 group_per=1000")
    await fill(desk, a=2)
    await ids(desk, 9)
    assert await ids(desk, 9) == []
    desk.elapse(1)
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.claim(0)
    assert desk.wake_ups() == 1


async def test_a_higher_rate_wakes_before_the_token_was_due(desk):
    await limit(desk, "rate=1 per=60000")
    await desk.submit("a", "b")
    await ids(desk, 9)
    await limit(desk, "")
    assert (desk.wake_ups(), await ids(desk)) == (1, ["b"])


async def test_a_job_is_submitted_while_no_worker_waits_for_the_token(desk):
    await limit(desk, "rate=1 per=1000")
    await desk.submit("a")
    await ids(desk)
    await desk.submit("b")
    assert desk.wake_ups() == 1, "somebody has to wait for the token"
    assert (await desk.ask()).next_in <= 1
    await desk.submit("c")
    assert desk.wake_ups() == 0


# operators' verbs


async def test_cancel_and_reschedule_move_a_job_of_a_group(desk):
    await fill(desk, a=3)
    await desk.operate("cancel", "a0")
    await desk.operate("reschedule", "a2", None, "priority=9")
    await desk.operate("reschedule", "a1", None, "delay=60000")
    assert (desk.members("waiting:q|a"), desk.members("grouped:q"), desk.state("a1")) == (
        ["a2"],
        ["a2"],
        "scheduled",
    )
    assert await ids(desk, 9) == ["a2"]
    await desk.operate("promote", "a1")
    assert (desk.state("a1"), await ids(desk, 9)) == ("queued", ["a1"])


async def test_a_retry_and_a_release_return_to_the_group(desk):
    await fill(desk, a=2)
    lease = await desk.take("a0")
    assert await desk.release(lease) == "queued"
    lease = await desk.take("a0")
    await desk.fail(lease, again=False)
    await desk.operate("retry", "a0")
    assert await ids(desk, 9) == ["a1", "a0"]


async def test_a_failed_batch_wakes_one_worker(desk):
    await limit(desk, "group_concurrency=1")
    await fill(desk, a=2, b=2)
    leases = await desk.claim(9)
    await ids(desk)
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.run(verbs.fail(desk.base, [Failure(lease, "Boom", "", "", again=False) for lease in leases]))
    assert (desk.wake_ups(), await ids(desk, 9)) == (1, ["a1", "b1"])


# demand


@pytest.mark.parametrize(
    ("settings", "group", "ready"),
    [
        ("group_concurrency=5", "group=a", 5),
        ("concurrency=7", "", 7),
        ("rate=10 per=100000 burst=4", "", 4),
        ("rate=10 per=100000 burst=4", "cost=2", 2),
        ("group_rate=10 group_per=100000 group_burst=3", "group=a", 3),
        ("jobs=1000", "", 30),
    ],
)
async def test_a_pool_is_owed_workers_for_jobs_that_may_start(desk, settings, group, ready):
    await desk.pool()
    await limit(desk, settings)
    await desk.submit(*(f"j{i}" for i in range(30)), rules=group)
    assert (await desk.summon()).sum["ready"] == ready
    if ready < 30:
        await desk.claim(30)
        assert (await desk.summon()).sum["ready"] == 0


# bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("concurrency=0", "setting concurrency=0: use 1 or more; to start no jobs, pause the queue"),
        ("group_concurrency=0", "setting group_concurrency=0: use 1 or more; to start no jobs"),
        ("rate=60", "setting rate=60: say for how many ms, with per=60000 for a minute"),
        ("rate=0 per=1000", "setting rate=0: use 1 or more"),
        ("per=1000", "setting per=1000: it belongs to a rate: give that too"),
        ("group_burst=5", "setting group_burst=5: it belongs to a group_rate: give that too"),
        ("concurrency=-1", r"setting concurrency=-1: a queue takes jobs=N bytes=N concurrency=N"),
        ("share=2", "setting share=2: a queue takes"),
    ],
)
async def test_an_invalid_limit_is_refused_with_the_rule(desk, settings, words):
    with pytest.raises(Invalid, match=words):
        await limit(desk, settings)
    assert desk.everything() == {desk.base: {"layout": "1", "partitions": "1"}}


@pytest.mark.parametrize(
    "rules", ["group=", "group=two words", "group=" + "g" * 129, "cost=0", "cost=x", "group=é"]
)
async def test_an_invalid_group_or_cost_is_refused(desk, rules):
    (answer,) = await desk.submit("a", rules=rules)
    assert str(answer).startswith("INVALID rule ")
    assert desk.state("a") is None


# what somebody deleted


async def test_the_audit_gives_lost_turns_places_and_members_back(desk):
    await limit(desk, "group_concurrency=2")
    await fill(desk, a=4, b=1)
    await desk.take("a0")
    desk.raw.delete(
        keys.turns(desk.base, "q"), keys.places(desk.base, "q"), keys.group_places(desk.base, "q", "a")
    )
    desk.elapse(2)
    desk.raw.delete(keys.wake(desk.base, "q"))
    assert (await ids(desk), desk.wake_ups()) == ([], 1)
    assert sorted(await ids(desk, 9)) == ["a1", "b0"]
    assert held(desk, "a") == {"a0", "a1"}


async def test_the_audit_is_bounded_and_covers_all_within_a_minute(desk):
    ghosts = {f"ghost{i}": "a" for i in range(300)}
    await limit(desk, "concurrency=301")
    await desk.submit("a")
    desk.raw.hset(keys.places(desk.base, "q"), mapping=ghosts)
    for _ in range(60):
        desk.elapse(1)
        await desk.claim(0)
    assert held(desk) == set()


@pytest.mark.real_server
async def test_a_claim_of_a_hundred_jobs_from_a_hundred_groups_is_short(desk):
    await limit(
        desk,
        "concurrency=100000 group_concurrency=5 rate=1000000 per=1000 burst=1000000 group_rate=1000 group_per=1000",
    )
    for i in range(0, 2000, 200):
        await asyncio.gather(*(desk.submit(f"j{n}", rules=f"group=g{n}") for n in range(i, i + 200)))
    before = desk.raw.info("cpu")["used_cpu_user_main_thread"]
    for _ in range(10):
        assert len(await desk.claim(100)) == 100
    spent = desk.raw.info("cpu")["used_cpu_user_main_thread"] - before
    assert spent / 10 < 0.02  # 5 ms on an idle machine; tests share theirs


async def test_a_worker_that_claims_after_anothers_moment_keeps_the_next_one(desk):
    """Else nobody would: the other has no reason to claim again."""
    await limit(desk, "group_rate=1 group_per=1000")
    await fill(desk, a=3)
    await ids(desk, worker="late")
    assert (await desk.ask(worker="late")).next_in <= 1
    desk.elapse(1)
    assert await ids(desk, worker="other") == ["a1"]
    assert (await desk.ask(worker="other")).next_in <= 1


async def test_a_worker_that_came_before_its_moment_does_not_keep_it(desk):
    """What it waited for was cancelled, so it was told to wait for longer: the next job must wake somebody."""
    await limit(desk, "rate=1 per=1000")
    await desk.submit("a0", "a1")
    await ids(desk, worker="w")
    assert (await desk.ask(worker="w")).next_in <= 1
    await desk.operate("cancel", "a1")
    assert (await desk.ask(worker="w")).next_in == 2
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.submit("a2")
    assert desk.wake_ups() == 1


async def test_a_job_that_may_not_start_takes_no_token(desk):
    await limit(desk, "rate=10 per=1000000 burst=10")
    await fill(desk, a=3)
    await ids(desk)
    await tune(desk, "a", "concurrency=1")  # it has its turn until a claim looks at it
    full_at = desk.raw.get(keys.bucket(desk.base, "q"))
    assert await ids(desk, 9) == []
    assert desk.raw.get(keys.bucket(desk.base, "q")) == full_at


async def test_a_claim_that_turns_have_filled_wakes_a_worker_for_the_queue_behind(desk):
    await fill(desk, a=1)
    await desk.submit("plain", queue="other")
    desk.raw.lpop(keys.wake(desk.base, "other"))
    (lease,) = await desk.claim(1, queues=["q", "other"])
    assert (lease.id, desk.wake_ups("other")) == ("a0", 1)


async def test_a_queue_whose_groups_have_limits_stays_served_by_turns_without_its_own(desk):
    await tune(desk, "a", "concurrency=2")
    await limit(desk, "jobs=5")
    await desk.submit("plain")
    await desk.take("plain")
    await fill(desk, a=1)
    assert held(desk) == {"plain"}


async def test_a_job_behind_a_cancelled_one_starts_when_its_own_tokens_are_there(desk):
    await limit(desk, "rate=2 per=1000 burst=2")
    for job_id, cost in (("a", 2), ("b", 2), ("c", 1)):
        await desk.submit(job_id, rules=f"cost={cost}")
    await desk.take("a")
    assert await desk.claim(1) == []
    desk.raw.delete(keys.wake(desk.base, "q"))
    desk.elapse(0.6)
    await desk.operate("cancel", "b", 0)
    assert desk.wake_ups() == 1
    await desk.take("c")
