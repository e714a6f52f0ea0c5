"""repair: what jobs wait for, their workflows and their steps agree again after keys or fields were lost."""

import pytest

from sublet.connection.transport import follow
from sublet.model import State
from sublet.operations import statistics
from sublet.operations.consistency.repair import repair
from sublet.protocol import keys, reads, verbs
from sublet.steps import calls
from tests.protocol.test_call import calling, kept
from tests.protocol.test_call import end as end_called
from tests.protocol.test_repair import kinds, left_alone, put_right
from tests.protocol.test_workflow import DAY, HOUR, end, flow_of, job, members, reap, states, store

pytestmark = pytest.mark.timeout(120)


async def everything_fixed(desk):
    """Repair all of the partition; the kinds of faults that were repaired. Nothing is left."""
    seen, mended = await follow(desk.run, repair([desk.base]))
    assert seen.faults == []
    return kinds(mended)


async def scheduled(desk):
    """The number of scheduled jobs, as each reader counts them."""
    stats = await desk.run(reads.stats(desk.base, {}))
    survey = await desk.run(statistics.survey(desk.base))
    desk.raw.hdel(desk.base, "sampled")
    await desk.run(verbs.sample(desk.base, 0))
    sampled = int(desk.raw.get(keys.minutes(desk.base))[-128:][13 * 7 : 13 * 7 + 9])
    assert stats.states[State.SCHEDULED] == survey.sizes["scheduled"] == sampled
    return sampled


async def test_a_job_counts_the_edges_that_are_there(desk):
    await store(desk, job("a"), job("b"), job("c", "a", "b"))
    desk.raw.hset(keys.job(desk.base, "c"), "needs", 7)
    assert await put_right(desk, ("job", "c")) == ["needs 2"]
    desk.raw.hset(keys.job(desk.base, "c"), "needs", "x")
    assert await everything_fixed(desk) == ["needs"]
    await end(desk, "a")
    await end(desk, "b")
    assert states(desk, "c") == ["queued"]


async def test_a_job_counts_its_broken_edges(desk):
    await store(desk, job("a"), job("b"), job("c", "a", "b", rules="on_failure=hold"))
    await end(desk, "a", "fail")
    desk.raw.hdel(keys.job(desk.base, "c"), "broken")
    assert await put_right(desk, ("job", "c")) == ["needs 2"]
    assert desk.job("c")["broken"] == "1"
    await desk.operate("retry", "a")
    assert desk.job("c")["broken"] == "0"


async def test_a_job_without_edges_is_due(desk):
    await store(desk, job("a"), job("b", "a"), job("c", "a", rules="delay=5000"))
    desk.raw.delete(keys.downstream(desk.base, "a"))
    assert await put_right(desk, ("job", "b"), ("job", "c")) == ["needs 0", "needs 0"]
    await desk.reap()
    assert states(desk, "b", "c") == ["queued", "scheduled"]
    desk.elapse(6)
    await desk.reap()
    assert states(desk, "c") == ["queued"]


async def test_a_job_whose_upstreams_are_not_known_waits(desk):
    await store(desk, job("a"), job("b", "a"))
    desk.raw.delete(keys.downstream(desk.base, "a"), keys.upstream(desk.base, "b"))
    assert await left_alone(desk, ("job", "b")) == ["broken upstream"]


async def test_the_edges_of_very_many_upstreams_are_not_counted(desk):
    await store(desk, *(job(f"a{i}") for i in range(190)), job("z", "a0"))
    for part in range(3):
        ids = [f"b{part}-{i}" for i in range(190)]
        await store(desk, *(job(one, into=("z",)) for one in ids))
    desk.raw.hset(keys.job(desk.base, "z"), "needs", 7)
    assert await left_alone(desk, ("job", "z")) == ["sound"]


async def test_edges_that_were_forgotten_are_settled(desk):
    ids = [f"c{i}" for i in range(60)]
    await store(desk, job("a"), *(job(one, "a") for one in ids))
    await end(desk, "a")
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), ">a")
    assert await put_right(desk, ("edges", "a")) == ["unsettled"]
    await reap(desk)
    assert {*states(desk, *ids)} == {"queued"}


async def test_edges_whose_mark_was_lost_with_a_moment_far_away_are_settled(desk):
    ids = [f"c{i}" for i in range(60)]
    await store(desk, job("a"), *(job(one, "a") for one in ids))
    await end(desk, "a")
    desk.raw.zadd(keys.structure(desk.base, "scheduled"), {">a": 99999999999999})
    assert await everything_fixed(desk) == ["unsettled"]
    await reap(desk)
    assert {*states(desk, *ids)} == {"queued"}


async def test_a_job_does_not_wait_for_one_that_was_lost(desk):
    await store(desk, job("a"), job("b", "a"))
    desk.raw.delete(keys.job(desk.base, "a"))
    assert await everything_fixed(desk) == ["gone", "unsettled"]
    await reap(desk)
    assert (desk.state("b"), desk.job("b")["error"]) == ("cancelled", "upstream job a is gone")


async def test_a_job_does_not_wait_for_a_called_one_that_was_lost(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    desk.raw.delete(keys.job(desk.base, called))
    assert await everything_fixed(desk) == ["gone", "unsettled"]
    await reap(desk)
    assert await kept(desk) == ("called", f"{called} gone\n".encode())
    assert await everything_fixed(desk) == []


async def test_a_job_that_waits_for_a_called_one_is_sound(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    assert await left_alone(desk, ("job", "a"), ("edges", called)) == ["sound", "sound"]
    await end_called(desk, called, "dead")
    assert await everything_fixed(desk) == []
    await desk.operate("retry", called)
    assert await everything_fixed(desk) == []


async def test_an_open_workflow_whose_moment_was_lost_is_cancelled_within_an_hour(desk):
    await store(desk, job("a"), how="open")
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), ">/f")
    assert await put_right(desk, ("workflow", "f")) == ["unsettled"]
    desk.elapse(HOUR + 1)
    await desk.reap()
    assert (states(desk, "a"), flow_of(desk)["state"]) == (["cancelled"], "cancelled")


async def test_a_mark_without_edges_is_removed(desk):
    await store(desk, job("a"), job("b", "a"))
    desk.raw.zadd(keys.structure(desk.base, "scheduled"), {">a": 5e12, ">gone": 5e12})
    assert await put_right(desk, ("scheduled", ">a"), ("scheduled", ">gone")) == ["settled", "settled"]
    desk.raw.sadd(keys.unsettled(desk.base), "b")
    assert await everything_fixed(desk) == ["settled"]
    assert desk.members("scheduled") == ["b"]


async def test_a_workflow_counts_its_members_and_ends(desk):
    await store(desk, job("a"), job("b", "a"))
    await end(desk, "a")
    await end(desk, "b")
    desk.raw.hdel(keys.workflow(desk.base, "f"), "ended_at")
    desk.raw.zadd(keys.members(desk.base, "f"), {"b": 0})
    assert await put_right(desk, ("job", "b")) == ["member"]
    assert await put_right(desk, ("workflow", "f")) == ["ended"]
    assert (members(desk), "ended_at" in flow_of(desk)) == ({"a": 1, "b": 1}, True)


async def test_a_workflow_with_an_unfinished_job_has_not_ended(desk):
    await store(desk, job("a"))
    desk.raw.hset(keys.workflow(desk.base, "f"), "ended_at", 5)
    assert await put_right(desk, ("workflow", "f")) == ["ended"]
    assert "ended_at" not in flow_of(desk)


async def test_a_workflow_does_not_wait_for_a_lost_member(desk):
    await store(desk, job("a"), job("b"))
    await end(desk, "a")
    desk.raw.delete(keys.job(desk.base, "b"))
    assert await put_right(desk, ("workflow", "f")) == ["gone, ended"]
    assert (members(desk), "ended_at" in flow_of(desk)) == ({"a": 1}, True)


async def test_the_number_of_steps_is_counted_again(desk):
    lease = await desk.running("a")
    await desk.run(calls.step(desk.base, lease, {"one": b"1", "two": b"22"}))
    desk.raw.hset(keys.job(desk.base, "a"), "steps", "900 5")
    assert await put_right(desk, ("job", "a")) == ["steps"]
    assert desk.job("a")["steps"] == "2 9"


@pytest.mark.parametrize("before", [True, False])
async def test_a_caller_whose_edge_was_lost_gets_the_end_of_the_called_job(desk, before):
    """Repaired before, or after, that job has ended."""
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    desk.raw.delete(keys.downstream(desk.base, called))
    if before:
        assert await put_right(desk, ("job", "a")) == ["called"]
    await end_called(desk, called)
    if not before:
        assert await everything_fixed(desk) == ["called"]
    await reap(desk)
    assert desk.state("a") == "queued"
    assert (await kept(desk))[0] == "called"


async def test_a_caller_whose_called_job_was_lost_runs_and_calls_it_again(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    desk.raw.delete(keys.job(desk.base, called), keys.downstream(desk.base, called))
    assert "called" in await everything_fixed(desk)
    await reap(desk)
    again = await desk.call(await desk.take("a"))
    assert (again.kind, again.value.decode(), desk.state(called)) == ("call", called, "queued")


async def test_a_job_that_was_suspended_and_is_rescheduled_awaits_nothing(desk):
    await desk.suspend(await desk.running("a"), "nap", 60, "sleep")
    await desk.operate("promote", "a")
    await desk.operate("reschedule", "a", None, "delay=5000")
    assert await left_alone(desk, ("job", "a")) == ["sound"]
    desk.raw.hset(keys.job(desk.base, "a"), "awaits", "sleep")
    assert await left_alone(desk, ("job", "a")) == ["broken awaits"]


async def test_marks_are_not_counted_as_jobs(desk):
    await store(desk, job("a"), job("b", "a"), how="open")
    assert len(desk.members("scheduled")) == 3
    assert await scheduled(desk) == 2
    await store(desk)
    assert desk.members("scheduled") == ["b"]
    assert await scheduled(desk) == 1


async def test_the_id_of_an_erased_job_with_edges_is_not_given_again(desk):
    await store(desk, job("a"), job("x"), job("b", "a", "x"))
    await end(desk, "a", "fail")
    assert await desk.operate("erase", "b", 0) == "erased"
    words = "WRONG_STATE job b was deleted, and edges of it are left: use another id"
    assert await store(desk, job("b", "x"), flow="g") == words
    desk.elapse(15 * DAY)
    assert (await store(desk, job("y"), job("b", "y"), flow="g"))[1].created


async def test_a_completed_job_may_be_stored_again_when_it_is_forgotten(desk):
    await store(desk, job("a"), job("b", "a", rules="retention=60000"))
    await end(desk, "a")
    await end(desk, "b")
    desk.elapse(61)
    await desk.run(verbs.prune(desk.base, limit=200))
    assert (await store(desk, job("c"), job("b", "c"), flow="g"))[1].created


async def test_a_new_job_under_the_id_of_an_erased_one_holds_nobody(desk):
    await store(desk, job("a"), job("b", "a", rules="on_failure=hold"))
    await end(desk, "a", "fail")
    assert await desk.operate("erase", "a", 1) == "erased"
    await desk.submit("a")
    await reap(desk)
    assert (desk.state("b"), desk.job("b")["error"]) == ("cancelled", "upstream job a is gone")
    await end(desk, "a")
    assert await everything_fixed(desk) == []
