"""summon: compute how many workers a pool is owed, hand out summonses for them, and answer leavers."""

import asyncio
import math

import pytest

from sublet.errors import Invalid, NotFound, TooMany
from sublet.operations import pools
from sublet.operations.pools import Elsewhere
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

ONE = "queues=q invoker=none slots=1 arrive=15000"
"""Settings by which each job wants a worker, nearly."""


def memory(desk, name):
    return float(desk.raw.hget(keys.pool(desk.base, "p"), name) or 0)


async def jobs(desk, n, **how):
    marks = [f"j{desk.counter('submitted') + i}" for i in range(n)]
    await desk.submit(*marks, **how)
    return marks


async def sums(desk, **how):
    return (await desk.summon(**how)).sum


async def with_crew(desk, n, settings=ONE):
    """A pool with so many workers, and nothing to do."""
    await desk.pool("p", 0, settings)
    for i in range(n):
        await desk.join(f"w{i}")


# the computation


async def test_without_jobs_no_worker_is_owed(desk):
    await desk.pool("p", 0, "queues=q invoker=http max=3", "https://example.org")
    shown = await desk.summon(5)
    assert (shown.given, shown.word, shown.settings, shown.target) == (
        0,
        "",
        "queues=q invoker=http max=3",
        "https://example.org",
    )
    assert shown.sum == {
        "ready": 0,
        "running": 0,
        "rate": 0,
        "run": 1000,
        "need": 0,
        "wanted": 0,
        "crew": 0,
        "summoned": 0,
        "owed": 0,
    }


async def test_one_job_is_owed_one_worker(desk):
    await desk.pool()
    await jobs(desk, 1)
    assert (await desk.summon(5)).given == 1
    assert (await desk.summon(5)).given == 0


@pytest.mark.parametrize(
    ("ready", "settings", "wanted"),
    [
        (300, "slots=10 wait=5000", 6),  # 300 runs of 1 s, within 5 s: 60 at a time
        (300, "slots=10 wait=1000", 10),  # limits
        (300, "slots=10 wait=1000 max=40", 30),
        (3, "slots=1 wait=1", 3),  # never more than there are
        (10, "slots=10 wait=100", 1),
        (5, "slots=100", 1),
        (0, "min=2", 2),
        (1, "min=2", 2),
        (300, "max=0", 0),
        (21, "slots=1 wait=1000 max=20", 20),
        (41, "slots=2 wait=1000 max=100", 21),  # half a worker counts as one
    ],
)
async def test_the_pool_wants_enough_workers_to_empty_its_queues_in_time(desk, ready, settings, wanted):
    await desk.pool("p", 0, f"queues=q invoker=none {settings}")
    for _ in range(0, ready, 100):
        await jobs(desk, min(100, ready - desk.counter("submitted")))
    shown = await sums(desk)
    assert (shown["ready"], shown["wanted"], shown["owed"]) == (ready, wanted, wanted)


async def test_jobs_of_a_paused_queue_need_no_worker(desk):
    await desk.pool()
    await jobs(desk, 50)
    await desk.operate_queue("pause")
    assert (await sums(desk))["owed"] == 0


async def test_scheduled_jobs_need_no_worker_yet(desk):
    await desk.pool()
    await jobs(desk, 50, rules="delay=60000")
    assert (await sums(desk))["wanted"] == 0


async def test_the_submission_rate_is_an_average_over_10_s(desk):
    await desk.pool()
    await desk.summon(1)
    await jobs(desk, 20)
    begun = memory(desk, "at")
    desk.elapse(5)
    await desk.summon(1)
    passed = memory(desk, "at") - (begun - 5000)
    assert memory(desk, "rate") == pytest.approx(
        20_000 / passed * (1 - math.exp(-passed / 10_000)), rel=0.001
    )
    before, begun = memory(desk, "rate"), memory(desk, "at")
    desk.elapse(2)
    await desk.summon(1)
    passed = memory(desk, "at") - (begun - 2000)
    assert memory(desk, "rate") == pytest.approx(before * math.exp(-passed / 10_000), rel=0.001)


async def test_each_job_counts_once_in_the_submission_rate(desk):
    await desk.pool()
    await jobs(desk, 9)
    await desk.summon(1)
    leases = await desk.claim(9)
    for i, lease in enumerate(leases):
        await (desk.complete(lease) if i % 3 else desk.fail(lease, again=False))
    desk.elapse(5)
    await desk.summon(1)
    assert memory(desk, "rate") == 0


async def test_the_run_time_is_the_average_of_ended_attempts(desk):
    await desk.pool()
    await desk.summon(1)
    await jobs(desk, 2)
    leases = await desk.claim(2)
    desk.elapse(4)
    await desk.complete(leases[0])
    await desk.fail(leases[1], again=False)
    await desk.summon(1)
    assert memory(desk, "run") == pytest.approx(4000, abs=1000)
    before = memory(desk, "run")
    await jobs(desk, 1)
    lease = (await desk.claim(1))[0]
    await desk.complete(lease)
    desk.elapse(1)
    await desk.summon(1)
    assert memory(desk, "run") == pytest.approx(before * math.exp(-1 / 20), abs=300)


async def test_a_long_unfinished_attempt_counts_with_its_age(desk):
    await desk.pool()
    await jobs(desk, 10, rules="timeout=none")
    await desk.claim(10, lease=1000)
    await desk.summon(1)
    begun = memory(desk, "at")
    desk.elapse(5)
    shown = (await desk.summon(1)).sum
    passed = memory(desk, "at") - (begun - 5000)
    ran = 10 * 10_000 * (1 - math.exp(-passed / 10_000))
    assert memory(desk, "ran") == pytest.approx(ran, rel=0.001)
    assert shown["run"] == pytest.approx((ran + 5 * 1000) / 5, rel=0.001), (
        "beside five attempts of the known duration"
    )


async def test_averages_are_updated_at_most_four_times_a_second(desk):
    await desk.pool()
    call, begun = pools.summon(desk.base, "p", summons="s" * 22, n=1), desk.now()
    for passed, taken in ((0, 0), (249, 0), (250, 250), (300, 250), (500, 500)):
        text = call.text.replace(
            "call('TIME')", f"{{{(begun + passed) // 1000}, {(begun + passed) % 1000 * 1000}}}"
        )
        await desk.run(Call((("EVAL", text, *call.commands[0][2:]),), call.read))
        assert memory(desk, "at") == begun + taken


async def test_after_a_backward_jump_measurement_restarts_at_the_present(desk):
    await desk.pool()
    await jobs(desk, 5)
    await desk.summon(1)
    ahead = desk.now() + 3_600_000
    desk.raw.hset(keys.pool(desk.base, "p"), mapping={"at": ahead, "came_at": ahead, "rate": 2})
    await desk.summon(1)
    assert memory(desk, "at") <= desk.now()
    assert memory(desk, "came_at") <= desk.now()
    assert memory(desk, "rate") == 2


async def test_a_queue_without_its_own_counters_is_measured_by_its_growth(desk):
    """Its attempts are taken to last 1 s, and its rate is the growth of the queue."""
    await desk.pool()
    await desk.summon(1)
    desk.raw.hset(keys.counts(desk.base), mapping={f"n{i} completed 5": 1 for i in range(20_000)})
    marks = await jobs(desk, 10)
    assert [lease.id for lease in await desk.claim(4)] == marks[:4]
    desk.elapse(5)
    shown = (await desk.summon(1)).sum
    assert memory(desk, "rate") > 0
    assert (shown["ready"], shown["running"]) == (6, 4)
    assert not desk.raw.hexists(keys.counts(desk.base), "q wait ms")


# queues of other partitions


async def test_queues_of_other_partitions_are_counted_as_reported(desk):
    await desk.pool("p", 0, "queues=q,far invoker=none slots=1 max=100")
    await jobs(desk, 2)
    shown = await sums(
        desk, elsewhere=[Elsewhere("far", 5, 3, 100, 90, 9000), Elsewhere("stranger", 1000, 1000, 1, 1, 1)]
    )
    assert (shown["ready"], shown["running"]) == (7, 3)
    await desk.summon(1, elsewhere=[Elsewhere("far", 5, 3, 100, 90, 9000)])
    begun = memory(desk, "at")
    desk.elapse(4)
    await desk.summon(1, elsewhere=[Elsewhere("far", 5, 3, 140, 110, 29_000)])
    passed = memory(desk, "at") - (begun - 4000)
    assert memory(desk, "rate") == pytest.approx(
        40_000 / passed * (1 - math.exp(-passed / 10_000)), rel=0.001
    )
    assert memory(desk, "run") == 1000


async def test_a_reported_count_of_a_queue_replaces_the_local_one(desk):
    await desk.pool()
    await jobs(desk, 9)
    assert (await sums(desk, elsewhere=[Elsewhere("q", 2, 1, 0, 0, 0)]))["ready"] == 2


# summonses


async def test_two_callers_get_different_summonses(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 40)
    shown = await asyncio.gather(*(desk.summon(3) for _ in range(10)))
    assert sorted((one.given for one in shown), reverse=True) == [3, 3, 2, *[0] * 7]
    assert desk.raw.zcard(keys.summons(desk.base, "p")) == 8
    assert desk.raw.hget(keys.pool(desk.base, "p"), "summoned") == "8"


async def test_a_repeat_after_a_lost_reply_gets_the_same_summonses(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 40)
    assert (await desk.summon(5, summons="s" * 22)).given == 5
    stored = desk.raw.zrange(keys.summons(desk.base, "p"), 0, -1, withscores=True)
    assert (await desk.summon(5, summons="s" * 22)).given == 5
    assert desk.raw.zrange(keys.summons(desk.base, "p"), 0, -1, withscores=True) == stored
    assert [name for name, _ in stored] == [f"{'s' * 22}.{i}" for i in range(1, 6)]


async def test_a_summon_of_zero_workers_writes_nothing(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 40)
    before = desk.everything()
    assert (await desk.summon(0)).sum["owed"] == 8
    assert desk.everything() == before


async def test_a_summons_is_replaced_after_its_arrival_time(desk):
    await desk.pool("p", 0, "queues=q invoker=none slots=1 arrive=8000")
    await jobs(desk, 1)
    assert (await desk.summon(1)).given == 1
    desk.elapse(7)
    assert (await desk.summon(1)).given == 0
    desk.elapse(2)
    assert (await desk.summon(1)).given == 1
    assert desk.raw.hmget(keys.pool(desk.base, "p"), "summoned", "lost", "arrived") == ["2", "1", None]


async def test_a_worker_that_enlists_joins_the_crew_and_uses_its_summons(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 40)
    await desk.summon(3, summons="s" * 22)
    assert await desk.join("w", "s" * 22 + ".2") == "work"
    shown = await sums(desk)
    assert (shown["crew"], shown["summoned"], shown["owed"]) == (1, 2, 5)
    assert await desk.join("w", "s" * 22 + ".2") == "work", "its next heartbeat"
    assert (await sums(desk))["summoned"] == 2
    assert desk.raw.hget(keys.pool(desk.base, "p"), "arrived") == "1"
    assert desk.registration("w")["pool"] == "p"


async def test_a_summons_brings_one_worker(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 1)
    await desk.summon(1, summons="s" * 22)
    assert await desk.join("w", "s" * 22 + ".1") == "work"
    assert await desk.join("copy", "s" * 22 + ".1") == "drain"
    assert (await sums(desk))["crew"] == 1
    assert await desk.join("stranger", "x" * 22 + ".1") == "drain"


async def test_a_late_worker_is_drained_if_another_has_arrived(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 1)
    await desk.summon(1, summons="a" * 22)
    desk.elapse(16)
    await desk.summon(1, summons="b" * 22)
    assert await desk.join("second", "b" * 22 + ".1") == "work"
    assert await desk.join("first", "a" * 22 + ".1") == "drain"
    assert desk.raw.zrange(keys.crew(desk.base, "p"), 0, -1) == ["second"]


async def test_a_late_worker_replaces_the_one_that_is_expected(desk):
    """If every start takes longer than `arrive`, the late workers do the work."""
    await desk.pool("p", 0, ONE)
    await jobs(desk, 1)
    await desk.summon(1, summons="a" * 22)
    desk.elapse(16)
    await desk.summon(1, summons="b" * 22)
    assert await desk.join("first", "a" * 22 + ".1") == "work"
    shown = await sums(desk)
    assert (shown["crew"], shown["summoned"]) == (1, 0)
    assert await desk.join("second", "b" * 22 + ".1") == "drain"


async def test_late_workers_are_admitted_up_to_the_present_maximum(desk):
    settings = "queues=q invoker=none slots=1 wait=1 max="
    await desk.pool("p", 0, settings + "5")
    await jobs(desk, 9)
    assert (await desk.summon(5, summons="a" * 22)).given == 5
    await desk.pool("p", 1, settings + "2")
    assert [await desk.join(f"w{i}", f"{'a' * 22}.{i}") for i in (1, 2, 3)] == ["work", "work", "drain"], (
        "these arrive in time"
    )
    desk.elapse(16)
    await desk.pool("p", 2, settings + "1")
    assert (await desk.summon(5)).given == 1
    assert [await desk.join(f"w{i}", f"{'a' * 22}.{i}") for i in (4, 5)] == ["work", "drain"]


async def test_workers_of_a_pool_created_again_replace_expected_ones(desk):
    settings = "queues=q invoker=none slots=1 wait=1 max=2"
    await desk.pool("p", 0, settings)
    await jobs(desk, 9)
    for life in "ab":
        assert (await desk.summon(2, summons=life * 22)).given == 2
        if life == "a":
            assert [await desk.join(f"a{i}", f"{'a' * 22}.{i}") for i in (1, 2)] == ["work", "work"]
            await desk.pool("p", 1, "")
            await desk.pool("p", 0, settings)
    words = [await desk.join(f"{life}{i}", f"{life * 22}.{i}") for life in "ab" for i in (1, 2)]
    assert words == ["work", "work", "drain", "drain"]
    shown = await sums(desk)
    assert (shown["crew"], shown["summoned"]) == (2, 0)


async def test_no_more_workers_than_the_maximum_are_summoned(desk):
    await desk.pool("p", 0, "queues=q invoker=none slots=1 wait=1 max=4")
    await jobs(desk, 100)
    await desk.join("by-itself")
    given = [(await desk.summon(2)).given for _ in range(5)]
    assert given == [2, 1, 0, 0, 0]


async def test_a_backward_jump_removes_crew_and_summonses(desk):
    """Live workers are counted again; dead or missing ones must not count until the clock has caught up."""
    await desk.pool("p", 0, "queues=q invoker=none min=2")
    assert (await desk.summon(1, summons="a" * 22)).given == 1
    await desk.join("w")
    for key in (keys.crew(desk.base, "p"), keys.summons(desk.base, "p")):
        desk.raw.zadd(
            key, {name: score + 3_600_000 for name, score in desk.raw.zrange(key, 0, -1, withscores=True)}
        )
    shown = await sums(desk)
    assert (shown["crew"], shown["summoned"], shown["owed"]) == (0, 0, 2)
    assert (await desk.summon(5)).given == 2
    assert await desk.join("first", "a" * 22 + ".1") == "work", "it arrives late, but is still needed"
    await desk.join("w")
    shown = await sums(desk)
    assert (shown["crew"], shown["summoned"]) == (2, 1)


# the crew


async def test_a_worker_silent_for_12_s_leaves_the_crew(desk):
    await with_crew(desk, 2, "queues=q invoker=none min=2")
    desk.elapse(11)
    assert (await sums(desk))["crew"] == 2
    await desk.join("w0")
    desk.elapse(2)
    shown = await sums(desk)
    assert (shown["crew"], shown["owed"]) == (1, 1)


async def test_a_worker_that_leaves_is_removed_from_the_crew_at_once(desk):
    await with_crew(desk, 1)
    await desk.reconcile(worker="w0")
    assert (await sums(desk))["crew"] == 0


async def test_a_restarted_worker_keeps_its_place_in_the_crew(desk):
    await with_crew(desk, 1)
    await desk.join("w0", life="2")
    assert (await sums(desk))["crew"] == 1


async def test_surplus_workers_of_an_idle_crew_leave(desk):
    await with_crew(desk, 5, "queues=q invoker=none min=2 slots=10")
    words = [(await desk.summon(leaver=f"w{i}")).word for i in range(5)]
    assert words == ["leave", "leave", "leave", "stay", "stay"]
    assert (await sums(desk))["crew"] == 2


async def test_a_repeated_request_to_leave_gets_the_same_reply(desk):
    await with_crew(desk, 3, "queues=q invoker=none min=2 slots=10")
    assert [(await desk.summon(leaver="w1")).word for _ in range(2)] == ["leave", "leave"]
    assert (await desk.summon(leaver="w0")).word == "stay"


async def test_no_worker_leaves_if_the_others_lack_capacity(desk):
    await with_crew(desk, 2, "queues=q invoker=none slots=10 wait=1000")
    await jobs(desk, 9)
    assert (await desk.summon(leaver="w0")).word == "stay", (
        "nine jobs in ten slots leave too little free capacity"
    )


async def test_the_last_worker_leaves_after_an_idle_time(desk):
    await with_crew(desk, 1, "queues=q invoker=none linger=5000")
    await jobs(desk, 1)
    lease = (await desk.claim(1))[0]
    assert (await desk.summon(leaver="w0")).word == "stay"
    await desk.complete(lease)
    await desk.summon(1)
    assert (await desk.summon(leaver="w0")).word == "stay"
    for _ in range(6):
        desk.elapse(5)
        await desk.join("w0")
        word = (await desk.summon(leaver="w0")).word
    assert word == "leave"


async def test_a_worker_may_leave_a_missing_pool(desk):
    shown = await desk.summon(leaver="w", name="gone")
    assert (shown.given, shown.word, shown.sum) == (0, "leave", {})


async def test_a_missing_pool_is_not_found(desk):
    with pytest.raises(NotFound, match="no pool gone"):
        await desk.summon(1, name="gone")
    desk.raw.hset(keys.pools(desk.base), "spoiled", "nonsense")
    with pytest.raises(NotFound, match="no pool spoiled"):
        await desk.summon(1, name="spoiled")


# invalid arguments


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"n": 101}, TooMany), ({"n": -1}, TooMany), ({"n": "nan"}, TooMany), ({"n": 0.5}, TooMany), ({"n": "-0"}, TooMany),
        ({"summons": "s" * 21}, Invalid), ({"summons": "s" * 65}, Invalid), ({"summons": " " * 30}, Invalid),
        ({"name": ""}, Invalid), ({"name": "a b"}, Invalid), ({"leaver": "a b"}, Invalid),
        ({"elsewhere": [Elsewhere(f"q{i}", 1, 1, 1, 1, 1) for i in range(33)]}, TooMany),
        *(({"elsewhere": [Elsewhere("q", *(wrong if i == j else 1 for i in range(5)))]}, Invalid)
          for j in range(5) for wrong in ("x", -1, 1.5, "nan", "", 10**14)),
    ],
)  # fmt: skip
async def test_invalid_arguments_are_refused_and_change_nothing(desk, wrong, error):
    await desk.pool()
    await jobs(desk, 5)
    before = desk.everything()
    with pytest.raises(error):
        await desk.summon(**{"n": 5, **wrong})
    assert desk.everything() == before


async def test_invalid_averages_start_again(desk):
    await desk.pool()
    await jobs(desk, 5)
    spoiled = ("at", "came", "ended", "took", "rate", "run", "ran", "over", "running", "came_at", "summoned")
    desk.raw.hset(keys.pool(desk.base, "p"), mapping=dict.fromkeys(spoiled, "spoiled"))
    assert (await desk.summon(1)).given == 1
    assert memory(desk, "summoned") == 1


async def test_32_queues_are_summed(desk):
    names = [f"q{i}" for i in range(32)]
    await desk.pool("p", 0, f"queues={','.join(names)} invoker=none slots=1 max=1000 wait=1")
    for name in names:
        await desk.submit(f"of-{name}", queue=name)
    assert (await sums(desk))["ready"] == 32
    far = [Elsewhere(name, 10, 0, 0, 0, 0) for name in names]
    assert (await sums(desk, elsewhere=far))["ready"] == 320


async def test_a_summoned_worker_is_asked_to_drain(desk):
    await desk.pool("p", 0, ONE)
    await jobs(desk, 1)
    await desk.summon(1, summons="s" * 22)
    await desk.join("w", "s" * 22 + ".1")
    await desk.run(verbs.drain(desk.base, "w", "1"))
    assert await desk.join("w", "s" * 22 + ".1") == "drain"


async def test_the_numbers_of_a_pool_are_integers(desk):
    await desk.pool()
    await jobs(desk, 7)
    await desk.summon(1)
    desk.elapse(3)
    shown = await desk.run(pools.summon(desk.base, "p", summons="s" * 22, n=1))
    assert all(isinstance(number, int) for number in shown.sum.values())
