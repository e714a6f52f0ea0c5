"""proceed: a job is completed, and the jobs that follow are stored, both or neither."""

import pytest

from sublet.model import Completion
from sublet.protocol import keys
from sublet.workflows import following, storing
from tests.protocol.test_workflow import end, flow_of, members, reap, states
from tests.protocol.test_workflow import job as linked


async def proceed(desk, lease, *jobs, flow="f", result=b'"done"'):
    return await desk.run(following.proceed(desk.base, Completion(lease, result), flow, jobs))


async def test_a_job_is_completed_and_others_follow(desk):
    lease = await desk.running("a")
    assert await proceed(desk, lease, linked("b"), linked("c"), linked("d", "b", "c")) == "completed"
    assert states(desk, "a", "b", "c", "d") == ["completed", "queued", "queued", "scheduled"]
    assert (desk.job("a")["result"], desk.job("a")["ended"]) == ('"done"', "complete completed")
    assert (flow_of(desk)["state"], members(desk)) == ("sealed", {"b": 0, "c": 0, "d": 0})
    assert desk.backlog() == (3, 6)
    await end(desk, "b")
    await end(desk, "c")
    await end(desk, "d")
    assert desk.backlog() == (0, 0)
    assert "ended_at" in flow_of(desk)


async def test_a_repeated_call_stores_nothing_more(desk):
    lease = await desk.running("a")
    jobs = [linked("b"), linked("c", "b")]
    assert await proceed(desk, lease, *jobs) == "completed"
    await end(desk, "b")
    before = desk.everything()
    assert await proceed(desk, lease, *jobs) == "completed"
    assert await proceed(desk, lease, linked("other"), flow="g") == "completed"
    assert desk.everything() == before


async def test_a_repeat_after_a_plain_completion_stores_nothing(desk):
    lease = await desk.running("a")
    await desk.complete(lease)
    assert await proceed(desk, lease, linked("b")) == "completed"
    assert not desk.raw.exists(keys.job(desk.base, "b"))


async def test_a_ghost_and_a_missing_job_store_nothing(desk):
    ghost = await desk.running("a")
    await desk.release(ghost)
    live = await desk.take("a")
    assert await proceed(desk, ghost, linked("b")) == "LEASE_LOST"
    assert await proceed(desk, ghost._replace(id="none"), linked("b")) == "NOT_FOUND"
    assert states(desk, "a") == ["running"]
    assert not desk.raw.exists(keys.job(desk.base, "b"), keys.workflow(desk.base, "f"))
    await desk.fail(live, again=False)
    assert await proceed(desk, live, linked("b")) == "LEASE_LOST"


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([linked("b", rules="key=k")], "INVALID rules of job b: its id is unique, so leave out key"),
        ([linked("b", queue="a b")], "INVALID job b: names must be"),
        ([linked("b", "none")], "NOT_FOUND edge none to b: none is neither above it nor stored"),
        ([linked("b"), linked("b")], "INVALID job b is given twice"),
    ],
    ids=["key", "queue", "edge", "twice"],
)
async def test_a_refusal_leaves_the_job_running(desk, jobs, words):
    lease = await desk.running("a")
    before = desk.everything()
    assert (await proceed(desk, lease, *jobs)).startswith(words)
    assert desk.everything() == before
    assert await desk.complete(lease) == "completed"


async def test_an_invalid_workflow_is_refused(desk):
    lease = await desk.running("a")
    for flow in ("", "a b", "x" * 65):
        assert (await proceed(desk, lease, linked("b"), flow=flow)).startswith("INVALID workflow: use an id")
    assert states(desk, "a") == ["running"]


async def test_a_full_queue_leaves_the_job_running_and_a_later_call_completes_it(desk):
    lease = await desk.running("a")
    await desk.operate_queue("configure", "q", None, "jobs=2")
    jobs = [linked("b"), linked("c"), linked("d", "b", "c")]
    before = desk.everything()
    assert (await proceed(desk, lease, *jobs)).startswith("QUEUE_FULL job d: queue q may hold 2 jobs")
    assert desk.everything() == before
    assert isinstance(await desk.heartbeat(lease), int)
    await desk.operate_queue("configure", "q", None, "jobs=3")
    assert await proceed(desk, lease, *jobs) == "completed"
    assert desk.backlog()[0] == 3


async def test_the_job_leaves_room_for_one_that_follows(desk):
    await desk.operate_queue("configure", "q", None, "jobs=1 bytes=2")
    lease = await desk.running("a")
    assert await proceed(desk, lease, linked("b")) == "completed"
    assert desk.backlog() == (1, 2)


async def test_it_gives_back_its_place_and_its_key_and_settles_its_edges(desk):
    await desk.operate_queue("configure", "q", None, "concurrency=1")
    await desk.run(storing.workflow(desk.base, "", "seal", [linked("a"), linked("z", "a")]))
    lease = await desk.take("a")
    assert await proceed(desk, lease, linked("b")) == "completed"
    assert desk.raw.hlen(keys.places(desk.base, "q")) == 0
    assert states(desk, "b", "z") == ["queued", "queued"]


async def test_an_open_workflow_is_sealed_with_the_completion(desk):
    lease = await desk.running("a")
    await desk.run(storing.workflow(desk.base, "f", "open", [linked("b"), linked("c")]))
    assert states(desk, "b", "c") == ["scheduled", "scheduled"]
    assert await proceed(desk, lease, linked("d", "b", "c")) == "completed"
    assert states(desk, "a", "b", "c", "d") == ["completed", "queued", "queued", "scheduled"]
    await reap(desk)
    assert desk.members("scheduled") == ["d"]


async def test_a_workflow_that_was_not_sealed_in_time_is_refused(desk):
    lease = await desk.running("a", "timeout=none")
    await desk.run(storing.workflow(desk.base, "f", "open", [linked("b")]))
    desk.elapse(3700)
    desk.raw.zadd(keys.structure(desk.base, "running"), {"a": desk.now() + 60_000})
    await reap(desk)
    answer = await proceed(desk, lease, linked("c"))
    assert answer == "WRONG_STATE workflow f was cancelled, or not sealed within an hour"
    assert states(desk, "a", "b") == ["running", "cancelled"]


async def test_without_jobs_it_completes(desk):
    lease = await desk.running("a")
    assert await proceed(desk, lease) == "completed"
    assert "ended_at" in flow_of(desk)
