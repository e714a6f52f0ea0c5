"""reap: do maintenance."""

import pytest

from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

FORTNIGHT = 14 * 86_400_000


async def lose(desk, job_id, attempt=1):
    """Claim a job and let its lease expire. Return the ms until its next try, 0 if it is queued."""
    await desk.take(job_id)
    desk.elapse(31)
    assert (await desk.reap())[0] == 1
    if desk.state(job_id) == "queued":
        return 0
    return desk.score("scheduled", job_id) - int(desk.job(job_id)[f"attempt:{attempt}"].split(" ")[2])


async def test_a_dead_worker_loses_its_lease(desk):
    await desk.running("a", worker="host-1")
    desk.elapse(30)
    assert await desk.reap() == (1, 0, False)
    assert desk.state("a") == "queued"
    words = desk.job("a")["attempt:1"].split(" ")
    assert (words[1], words[3]) == ("host-1", "lease_expired")
    assert desk.events()[-1] == ("a", "queued", "lease_expired")
    assert desk.counter("expired") == 1


async def test_a_live_lease_is_kept(desk):
    lease = await desk.running("a")
    desk.elapse(29)
    assert await desk.reap() == (0, 0, False)
    assert await desk.complete(lease) == "completed"


async def test_a_job_is_due_at_its_exact_millisecond(desk):
    await desk.running("a")
    end, call = desk.score("running", "a"), verbs.reap(desk.base, limit=10, by="tick")
    for moment, lost in ((end - 1, 0), (end, 1)):
        text = call.text.replace("call('TIME')", f"{{{moment // 1000}, {moment % 1000 * 1000}}}")
        assert text != call.text
        assert (await desk.run(Call((("EVAL", text, *call.commands[0][2:]),), call.read)))[:3] == (
            lost,
            0,
            False,
        )


async def test_the_first_lost_lease_in_a_row_returns_the_job_to_its_old_position(desk):
    await desk.submit("c", "b", "a")
    c, _ = await desk.claim(2)
    await desk.heartbeat(c, extend=60)
    desk.elapse(30)
    await desk.reap()
    assert desk.members("queue:q") == ["b", "a"]
    desk.elapse(30)
    await desk.reap()
    assert desk.members("queue:q") == ["c", "b", "a"]


async def test_from_the_second_lost_lease_on_the_job_waits_for_a_backoff(desk):
    await desk.submit("a", rules="tries=6")
    assert await lose(desk, "a") == 0
    for attempt, full in ((2, 2000), (3, 4000), (4, 8000)):
        assert full / 2 <= await lose(desk, "a", attempt) <= full
        desk.elapse(10)
        await desk.reap()


@pytest.mark.parametrize("verb", ["fail", "release"])
async def test_another_outcome_resets_the_count_of_lost_leases(desk, verb):
    await desk.submit("a", rules="tries=9 backoff=0:1:0")
    assert await lose(desk, "a") == 0
    await getattr(desk, verb)(await desk.take("a"))
    desk.raw.zrem(keys.structure(desk.base, "running"), "a")
    await desk.reap()
    lease = await desk.take("a")
    assert lease.attempt == 3
    desk.elapse(31)
    await desk.reap()
    assert desk.job("a")["streak"] == "lease_expired 1"
    assert desk.state("a") == "queued"


async def test_a_lost_lease_uses_up_a_try(desk):
    await desk.submit("a", rules="tries=2 backoff=0:1:0")
    await lose(desk, "a")
    await desk.take("a")
    desk.elapse(30)
    await desk.reap()
    assert desk.state("a") == "dead"
    assert desk.score("dead", "a") - int(desk.job("a")["finished_at"]) == FORTNIGHT
    assert desk.job("a")["attempt:2"].endswith(" lease_expired")


@pytest.mark.parametrize(
    ("heard", "code", "state"), [(11, "timed_out", "scheduled"), (9, "lease_expired", "queued")]
)
async def test_a_lease_that_outlives_its_timeout_has_timed_out(desk, heard, code, state):
    """Its worker was alive: it sent a heartbeat after the timeout. Like another timeout, it waits for the backoff."""
    lease = await desk.running("a", rules="timeout=10000", worker="rogue")
    desk.elapse(heard)
    await desk.heartbeat(lease)
    desk.elapse(15 - heard)
    assert await desk.reap() == (1, 0, False)
    assert desk.state("a") == state
    ending, *more = desk.job("a")["attempt:1"].split("\n")
    assert ending.split(" ")[3] == code
    assert more[:1] == (
        ["ran longer than 10 s; its worker sent heartbeats and no outcome"] if heard > 10 else []
    )
    assert desk.events()[-1] == ("a", state, code)
    assert desk.job("a")["streak"] == "lease_expired 1"
    desk.elapse(3)
    assert (await desk.take("a")).lost


async def test_a_job_without_a_timeout_never_times_out(desk):
    lease = await desk.running("a", rules="timeout=none")
    desk.elapse(29)
    await desk.heartbeat(lease)
    desk.elapse(31)
    await desk.reap()
    assert desk.job("a")["attempt:1"].endswith(" lease_expired")


async def test_a_lost_lease_wakes_a_worker(desk):
    await desk.running("a")
    desk.raw.delete(keys.wake(desk.base, "q"))
    desk.elapse(30)
    await desk.reap()
    assert desk.wake_ups() == 1


async def test_the_token_of_a_lost_lease_is_refused(desk):
    lease = await desk.running("a")
    desk.elapse(30)
    await desk.reap()
    before = desk.everything()
    for verb in ("heartbeat", "complete", "fail", "release"):
        assert await getattr(desk, verb)(lease) == "LEASE_LOST"
    assert desk.everything() == before


async def test_due_jobs_are_queued_in_the_order_of_their_due_times(desk):
    for job_id, delay in (("c", 3000), ("a", 1000), ("b", 2000), ("later", 60_000)):
        await desk.submit(job_id, rules=f"delay={delay}")
    desk.raw.delete(keys.wake(desk.base, "q"))
    desk.elapse(3)
    assert await desk.reap() == (0, 3, False)
    assert desk.members("queue:q") == ["a", "b", "c"]
    assert desk.state("later") == "scheduled"
    assert desk.wake_ups() == 1
    assert desk.events()[-1] == ("c", "queued", "due")


async def test_a_due_job_keeps_its_priority(desk):
    await desk.submit("a")
    await desk.submit("b", rules="delay=1000 priority=1")
    desk.elapse(1)
    await desk.reap()
    assert desk.members("queue:q") == ["b", "a"]


async def test_a_reap_stops_at_its_limit_and_reports_whether_more_is_due(desk):
    await desk.submit("a", "b", "c")
    await desk.claim(3)
    await desk.submit("d", "e", rules="delay=1000")
    desk.elapse(30)
    assert await desk.reap(2) == (2, 0, True)
    assert await desk.reap(2) == (1, 1, True)
    assert await desk.reap(2) == (0, 1, False)
    assert await desk.reap(2) == (0, 0, False)


async def test_two_concurrent_reaps_move_each_job_once(desk):
    await desk.submit(*(f"j{i}" for i in range(10)))
    await desk.claim(10)
    desk.elapse(30)
    assert [await desk.reap(), await desk.reap()] == [(10, 0, False), (0, 0, False)]


async def test_maintenance_is_recorded_with_caller_and_time(desk):
    await desk.reap()
    at, by = desk.raw.hget(desk.base, "maintenance").split(" ")
    assert abs(int(at) - desk.now()) < 5000
    assert by == "tick"


async def test_ids_without_a_job_are_dropped(desk):
    await desk.submit("waiting")
    for structure in ("running", "scheduled"):
        desk.raw.zadd(keys.structure(desk.base, structure), {"ghost": 1, "waiting": 1})
    await desk.reap()
    assert desk.state("waiting") == "queued"
    assert (desk.places("ghost"), desk.state("ghost")) == ([], None)


async def test_a_store_reaps_and_returns_the_counts(desk, store):
    await desk.running("a")
    desk.elapse(30)
    assert (await store.follow(store.operations.reap("tick")))[:3] == (1, 0, False)
