"""call: a step of a running job is another job. Its end keeps the step and queues the caller, in all orders."""

import pytest

from sublet.errors import Invalid, LeaseLost, NotFound, QueueFull, StepsFull, WrongState
from sublet.model import Completion, Lease
from sublet.protocol import keys, reads, verbs
from sublet.steps.calls import STEP_MAX, Called
from sublet.workflows import storing
from tests.protocol.test_workflow import job as linked

NEVER = 99_999_999_999_999
DAY = 86_400


async def calling(desk, rules=""):
    """A running job that has called another one: its lease, and the id of that job."""
    lease = await desk.running("a", rules)
    return lease, (await desk.call(lease)).value.decode()


async def end(desk, called, how="completed"):
    """Let the called job end in one of several ways."""
    if how == "cancelled":
        await desk.operate("cancel", called)
        return
    lease = await desk.take(called)
    if how == "completed":
        await desk.complete(lease, b'"7"')
    else:
        await desk.fail(lease, "Boom", "no paper", again=False)


OUTCOMES = {
    "completed": 'completed\n"7"',
    "dead": "dead\nBoom no paper",
    "cancelled": "cancelled\n",
}


async def kept(desk, job_id="a", step="label"):
    """The step as the next attempt of the caller finds it."""
    return (await desk.steps(await desk.take(job_id)))[step]


# the orders


@pytest.mark.parametrize("how", OUTCOMES)
async def test_the_end_of_the_called_job_queues_the_waiting_caller(desk, how):
    lease, called = await calling(desk)
    assert await desk.suspend(lease, "label", kind="call") == f"scheduled {NEVER}"
    assert (desk.state("a"), desk.raw.hlen(keys.places(desk.base, "q"))) == ("scheduled", 0)
    await end(desk, called, how)
    assert (desk.state("a"), desk.members("scheduled"), "awaits" in desk.job("a")) == ("queued", [], False)
    assert await kept(desk) == ("called", f"{called} {OUTCOMES[how]}".encode())
    assert not desk.raw.exists(keys.downstream(desk.base, called))


@pytest.mark.parametrize("how", OUTCOMES)
async def test_an_end_before_the_suspend_is_kept_and_queues_the_caller_at_once(desk, how):
    lease, called = await calling(desk)
    await end(desk, called, how)
    assert desk.state("a") == "running"
    assert await desk.suspend(lease, "label", kind="call") == "queued"
    assert await kept(desk) == ("called", f"{called} {OUTCOMES[how]}".encode())


async def test_an_end_before_the_caller_looks_again_is_the_answer_of_its_next_call(desk):
    lease, called = await calling(desk)
    await end(desk, called)
    again = await desk.call(lease)
    assert (again.kind, Called.of(again.value)) == ("called", Called(called, "completed", b'"7"'))


async def test_an_end_after_the_callers_lease_was_lost_is_kept(desk):
    lease, called = await calling(desk)
    desk.elapse(60)
    await desk.reap()
    assert desk.state("a") == "queued"
    await desk.operate("reschedule", called, None, "priority=5")
    await end(desk, called)
    live = await desk.take("a")
    assert (await desk.steps(live))["label"][0] == "called"
    with pytest.raises(LeaseLost):
        await desk.call(lease, "other")


async def test_an_end_in_the_same_call_as_that_of_others(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await desk.submit("b")
    leases = await desk.claim(2)
    await desk.run(verbs.complete(desk.base, [Completion(lease, b"1") for lease in leases]))
    assert [lease.id for lease in leases] == [called, "b"]
    assert desk.members("queue:q") == ["a"]


async def test_the_caller_returns_to_its_old_place(desk):
    lease, called = await calling(desk)
    await desk.submit("b")
    await desk.suspend(lease, "label", kind="call")
    await end(desk, called)
    assert desk.members("queue:q") == ["a", "b"]


async def test_a_lost_lease_of_the_called_job_is_no_end(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await desk.take(called)
    desk.elapse(60)
    await desk.reap()
    assert (desk.state(called), desk.state("a")) == ("queued", "scheduled")


async def test_a_call_ends_also_through_a_reap_of_what_was_left(desk):
    """The 50 edges that a script settles are taken: the caller's comes later."""
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    edges = keys.downstream(desk.base, called)
    desk.raw.lpush(edges, *(f"gone-{n} label" for n in range(60)))
    await end(desk, called)
    assert desk.state("a") == "scheduled"
    for _ in range(3):
        await desk.reap()
    assert (desk.state("a"), desk.raw.exists(edges)) == ("queued", 0)


# once


async def test_a_call_is_stored_once(desk):
    lease, called = await calling(desk)
    before = desk.everything()
    assert (await desk.call(lease)).value.decode() == called
    assert desk.everything() == before
    assert called.startswith("0-call-")


async def test_a_later_attempt_finds_the_call(desk):
    lease, called = await calling(desk)
    await desk.fail(lease)
    desk.elapse(60)
    await desk.reap()
    (own,) = [one for one in await desk.claim(2) if one.id == "a"]
    assert (await desk.steps(own))["label"] == ("call", called.encode())
    assert (await desk.call(own)).value.decode() == called
    assert desk.raw.llen(keys.downstream(desk.base, called)) == 1


async def test_two_steps_call_two_jobs(desk):
    lease, called = await calling(desk)
    other = (await desk.call(lease, "other")).value.decode()
    assert other != called
    await end(desk, called)
    assert await desk.suspend(lease, "other", kind="call") == f"scheduled {NEVER}"
    await end(desk, other)
    assert desk.members("queue:q") == ["a"]


async def test_a_retry_anew_calls_another_job(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await desk.operate("cancel", "a")
    await desk.run(verbs.retry(desk.base, "a", desk.revision("a"), "", "anew"))
    live = next(one for one in await desk.claim(2) if one.id == "a")
    other = (await desk.call(live)).value.decode()
    await desk.complete(Lease(called, desk.job(called)["token"], 1, 0, "q", "t", None, b"", ""), b"1")
    assert (await desk.steps(live))["label"] == ("call", other.encode())
    await end(desk, other)
    assert (await desk.steps(live))["label"] == ("called", f'{other} completed\n"7"'.encode())


async def test_a_call_whose_job_is_gone_without_an_end_is_stored_again(desk):
    lease, called = await calling(desk)
    desk.raw.zrem(keys.queue(desk.base, "q"), called)
    desk.raw.delete(keys.job(desk.base, called), keys.downstream(desk.base, called))
    assert (await desk.call(lease)).value.decode() == called
    await end(desk, called)
    assert await desk.suspend(lease, "label", kind="call") == "queued"


# who may


async def test_a_ghost_calls_nothing(desk):
    ghost = await desk.running("a")
    await desk.release(ghost)
    await desk.take("a")
    before = desk.everything()
    with pytest.raises(LeaseLost, match="another attempt has begun"):
        await desk.call(ghost)
    with pytest.raises(NotFound):
        await desk.call(ghost._replace(id="none"))
    assert desk.everything() == before


async def test_a_finished_job_calls_nothing(desk):
    lease = await desk.running("a")
    await desk.complete(lease)
    with pytest.raises(LeaseLost):
        await desk.call(lease)


async def test_a_ghost_cannot_suspend_for_a_call(desk):
    lease, _ = await calling(desk)
    await desk.release(lease)
    (live,) = [one for one in await desk.claim(2) if one.id == "a"]
    assert await desk.suspend(lease, "label", kind="call") == "LEASE_LOST"
    assert await desk.suspend(live, "label", kind="call") == f"scheduled {NEVER}"


async def test_a_signal_neither_makes_nor_ends_a_call(desk):
    lease = await desk.running("a")
    await desk.signal("a", "label")
    called = (await desk.call(lease)).value.decode()
    assert desk.job("a")["steps"] == f"1 {len('label') + len(called)}"
    with pytest.raises(WrongState, match=r"has kept label \(call\)"):
        await desk.signal("a", "label")
    await desk.suspend(lease, "label", kind="call")
    await end(desk, called)
    assert (await kept(desk))[0] == "called"


async def test_a_suspend_without_a_call_is_a_failure(desk):
    lease = await desk.running("a", "tries=2")
    assert (await desk.suspend(lease, "label", kind="call")).startswith("scheduled ")
    job = desk.job("a")
    assert job["error"] == "not_called step label has called no job: send call before suspend"
    assert "awaits" not in job
    desk.elapse(60)
    await desk.reap()
    assert await desk.suspend(await desk.take("a"), "label", kind="call") == "dead"


# failures and retries


@pytest.mark.parametrize("caller", ["waits", "dead", "queued"])
async def test_a_retry_of_the_called_job_opens_the_step_again(desk, caller):
    lease, called = await calling(desk, "tries=1")
    await desk.suspend(lease, "label", kind="call")
    await end(desk, called, "dead")
    if caller != "queued":
        lease = await desk.take("a")
        await (desk.fail(lease) if caller == "dead" else desk.suspend(lease, "other"))
    await desk.operate("retry", called)
    assert desk.raw.hget(keys.job(desk.base, "a"), "step:label").split("\n") == [
        desk.job("a")["step:label"].split("\n")[0],
        called,
    ]
    if caller == "dead":
        await desk.operate("retry", "a")
    if caller == "waits":
        await desk.signal("a", "other")
    own = next(one for one in await desk.claim(1) if one.id == "a") if caller == "queued" else None
    if own is None:
        found = await desk.claim(2)
        own = next(one for one in found if one.id == "a")
        child = next(one for one in found if one.id == called)
    else:
        child = await desk.take(called)
    assert await desk.suspend(own, "label", kind="call") == f"scheduled {NEVER}"
    await desk.complete(child, b"8")
    assert await kept(desk) == ("called", f"{called} completed\n8".encode())
    assert not desk.raw.exists(keys.broken(desk.base, called))


async def test_a_retry_of_the_called_job_leaves_a_completed_caller_alone(desk):
    lease, called = await calling(desk)
    await end(desk, called, "dead")
    await desk.complete(lease)
    await desk.operate("retry", called)
    await end(desk, called)
    assert [name for name in desk.job("a") if name.startswith("step")] == []


async def test_a_caller_that_completes_without_its_call_leaves_no_trace(desk):
    lease, called = await calling(desk)
    await desk.complete(lease)
    await end(desk, called)
    assert [name for name in desk.job("a") if name.startswith("step")] == []
    assert not desk.raw.exists(keys.downstream(desk.base, called))


@pytest.mark.parametrize("verb", ["promote", "reschedule"])
async def test_an_order_lets_the_caller_run_and_it_waits_again(desk, verb):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await desk.operate(verb, "a", None, *(["delay=0"] if verb == "reschedule" else []))
    live = await desk.take("a")
    assert await desk.steps(live) == {"label": ("call", called.encode())}
    assert await desk.suspend(live, "label", kind="call") == f"scheduled {NEVER}"
    await end(desk, called)
    assert (await kept(desk))[0] == "called"


async def test_a_cancelled_caller_keeps_the_end_for_its_retry(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await desk.operate("cancel", "a")
    await end(desk, called)
    assert desk.state("a") == "cancelled"
    await desk.operate("retry", "a")
    assert (await kept(desk))[0] == "called"


async def test_the_caller_of_an_erased_job_keeps_its_failure(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await end(desk, called, "dead")
    await desk.operate("erase", called)
    for _ in range(2):
        await desk.reap()
    assert await kept(desk) == ("called", f"{called} dead\nBoom no paper".encode())
    assert not desk.raw.exists(keys.downstream(desk.base, called))


async def test_a_called_job_may_be_an_upstream_too(desk):
    lease, called = await calling(desk)
    await desk.run(storing.workflow(desk.base, "f", "seal", [linked("d", called)]))
    await desk.suspend(lease, "label", kind="call")
    await end(desk, called)
    assert (desk.state("a"), desk.state("d")) == ("queued", "queued")


# limits


@pytest.mark.parametrize("size", [STEP_MAX, STEP_MAX + 1])
async def test_a_result_that_does_not_fit_into_a_step_is_refused(desk, size):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    await desk.complete(await desk.take(called), b"x" * size)
    _, value = await kept(desk)
    outcome = Called.of(value)
    assert outcome.state == ("completed" if size == STEP_MAX else "refused")
    words = f"its result has {size} bytes, and a call takes {STEP_MAX}: let it store the data elsewhere"
    assert outcome.body == b"x" * size if size == STEP_MAX else outcome.body.decode().startswith(words)


async def test_a_result_for_which_the_job_has_no_room_is_refused(desk):
    lease = await desk.running("a")
    for n in range(16):
        await desk.step(lease, **{f"s{n}": b"x" * 65_000})
    called = (await desk.call(lease)).value.decode()
    await desk.complete(await desk.take(called), b"x" * 9_000)
    outcome = Called.of((await desk.steps(lease))["label"][1])
    assert outcome.state == "refused"
    assert outcome.body.startswith(b"its result has no room: job a has 17 steps of 1040")


async def test_a_job_with_all_its_steps_calls_nothing(desk):
    lease = await desk.running("a")
    for i in range(0, 1000, 100):
        await desk.step(lease, **{f"s{n}": b"1" for n in range(i, i + 100)})
    with pytest.raises(StepsFull, match="job a has 1000 steps"):
        await desk.call(lease)


async def test_a_full_queue_refuses_the_call_and_nothing_is_stored(desk):
    lease = await desk.running("a")
    await desk.operate_queue("configure", "q", None, "jobs=1")
    before = desk.everything()
    refusal = await desk.run(desk.call_of(lease))
    assert isinstance(refusal, QueueFull)
    assert str(refusal).startswith("queue q may hold 1 jobs and has 1")
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"rules": "key=k"}, "leave out key and workflow"),
        ({"rules": "workflow=f"}, "leave out key and workflow"),
        ({"rules": "tries=no"}, "rule tries=no: use a number from 1"),
        ({"queue": "a b"}, "names must be 1 to 128"),
        ({"name": "a b"}, "step or signal a b: use 1 to 128"),
    ],
    ids=["key", "workflow", "rule", "queue", "name"],
)
async def test_bad_input_is_refused_and_nothing_is_stored(desk, how, words):
    lease = await desk.running("a")
    before = desk.everything()
    try:
        answer = await desk.run(desk.call_of(lease, **how))
    except Invalid as error:
        answer = error
    assert isinstance(answer, Invalid)
    assert words in str(answer)
    assert desk.everything() == before


async def test_a_call_with_a_limit_is_refused(desk):
    lease, _ = await calling(desk)
    with pytest.raises(Invalid, match="delay 60000: use ms, at most 14 digits; none for a call"):
        await desk.suspend(lease, "label", 60, "call")


def test_a_job_of_another_partition_is_refused(desk):
    lease = Lease("1-a", "1.c", 1, 0, "q", "t", None, b"", "")
    with pytest.raises(Invalid, match="queue q is in another partition than job 1-a"):
        desk.call_of(lease)


async def test_a_read_shows_what_the_caller_waits_for(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    job = await desk.run(reads.get(desk.base, "a"))
    assert (job.awaits, [(one.name, one.kind) for one in job.steps]) == ("call label", [("label", "call")])
    await end(desk, called)
    job = await desk.run(reads.get(desk.base, "a"))
    assert (job.awaits, [(one.name, one.kind) for one in job.steps]) == (None, [("label", "called")])


async def test_a_repair_puts_a_calling_job_back_and_its_wait_goes_on(desk):
    lease, called = await calling(desk)
    await desk.suspend(lease, "label", kind="call")
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), "a")
    await desk.run(verbs.repair(desk.base, "mend", [("job", "a")]))
    assert desk.score("scheduled", "a") == NEVER
    await end(desk, called)
    assert (await kept(desk))[0] == "called"
