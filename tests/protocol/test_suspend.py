"""suspend: a job sleeps, or waits for a signal, and holds no worker meanwhile."""

import pytest

from sublet.errors import Invalid, WrongState
from sublet.model import Lease, Suspension
from sublet.protocol import keys, reads, verbs
from sublet.protocol.scripts import script
from sublet.steps import calls as steps

NEVER = 99_999_999_999_999
DAY = 86_400


async def test_a_sleeping_job_runs_on_when_its_time_has_come(desk):
    lease = await desk.running("a")
    before = desk.now()
    word, moment = (await desk.suspend(lease, "cool-off", 3 * DAY, "sleep")).split()
    assert (word, before + 3 * DAY * 1000 <= int(moment) <= desk.now() + 3 * DAY * 1000) == (
        "scheduled",
        True,
    )
    assert desk.job("a")["awaits"].startswith("sleep cool-off ")
    desk.elapse(3 * DAY - 60)
    assert await desk.claim() == []
    desk.elapse(60)
    lease = await desk.take("a")
    assert (await desk.steps(lease), lease.recovered) == ({"cool-off": ("sleep", b"null")}, "suspended")
    assert "awaits" not in desk.job("a")


async def test_a_sleep_of_30_days_outlasts_ticks_and_repairs_and_keeps_all_tries(desk):
    lease = await desk.running("a", "tries=3")
    await desk.run(steps.step(desk.base, lease, {"charge": b"1"}))
    await desk.suspend(lease, "cool-off", 30 * DAY, "sleep")
    for _ in range(30):
        assert await desk.claim() == []
        await desk.run(verbs.prune(desk.base, limit=200))
        assert (desk.state("a"), desk.backlog()[0]) == ("scheduled", 1)
        desk.elapse(DAY)
    assert await desk.run(verbs.repair(desk.base, "mend", [("job", "a")])) == ["sound"]
    lease = await desk.take("a")
    kept = await desk.steps(lease)
    assert (kept["charge"][1], kept["cool-off"], lease.attempt, lease.tries_left) == (
        b"1",
        ("sleep", b"null"),
        2,
        2,
    )


async def test_a_wait_without_a_limit_ends_only_with_its_signal(desk):
    lease = await desk.running("a")
    assert await desk.suspend(lease) == f"scheduled {NEVER}"
    desk.elapse(10_000 * DAY)
    assert await desk.claim() == []
    await desk.signal("a")
    assert await desk.steps(await desk.take("a")) == {"go": ("signal", b"true")}


async def test_a_wait_ends_at_its_limit(desk):
    await desk.suspend(await desk.running("a"), seconds=60)
    desk.elapse(61)
    lease = await desk.take("a")
    assert await desk.steps(lease) == {"go": ("timeout", b"")}


async def test_a_suspension_uses_no_try_and_is_no_error(desk):
    lease = await desk.running("a", "tries=1")
    for i in range(5):
        assert lease.tries_left == 0
        await desk.suspend(lease, f"s{i}", 1, "sleep")
        desk.elapse(2)
        lease = await desk.take("a")
    job = desk.job("a")
    assert ("error" in job, "streak" in job, lease.attempt) == (False, False, 6)
    assert job["attempt:5"].split(" ", 3)[3] == "suspended\nsleep s4\n"
    assert desk.raw.hget(keys.backlog(desk.base), "q running") == "1"


async def test_a_suspended_job_returns_to_its_old_place(desk):
    await desk.submit("a", "b", "c")
    await desk.suspend(await desk.take("a"), "go")
    await desk.suspend(await desk.take("b"), "nap", 60, "sleep")
    desk.elapse(61)
    await desk.reap()
    await desk.signal("a")
    assert desk.members("queue:q") == ["a", "b", "c"]


async def test_a_suspended_job_with_another_priority_goes_among_those(desk):
    await desk.submit("a", "b")
    await desk.suspend(await desk.take("a"))
    await desk.submit("c", rules="priority=5")
    await desk.operate("reschedule", "a", None, "priority=5")
    await desk.signal("a")
    assert desk.members("queue:q") == ["a", "c", "b"]


async def test_it_holds_no_place(desk):
    await desk.operate_queue("configure", "q", None, "concurrency=1 group_concurrency=1")
    await desk.submit("a", "b", rules="group=g")
    await desk.suspend(await desk.take("a"))
    await desk.suspend(await desk.take("b"))
    assert desk.raw.hlen(keys.places(desk.base, "q")) == 0
    await desk.signal("b")
    await desk.signal("a")
    assert desk.members("grouped:q") == ["a", "b"]
    await desk.take("a")
    assert await desk.claim() == []


async def test_a_signal_that_came_before_the_suspension_queues_the_job_at_once(desk):
    lease = await desk.running("a")
    await desk.signal("a")
    assert await desk.suspend(lease) == "queued"
    assert await desk.suspend(lease) == "queued"
    assert "awaits" not in desk.job("a")
    await desk.take("a")
    assert await desk.suspend(lease) == "LEASE_LOST"


async def test_a_repeated_suspension_has_the_first_answer(desk):
    lease = await desk.running("a")
    first = await desk.suspend(lease, "nap", 60, "sleep")
    desk.elapse(1)
    assert await desk.suspend(lease, "nap", 60, "sleep") == first
    await desk.operate("promote", "a")
    await desk.take("a")
    assert await desk.suspend(lease, "nap", 60, "sleep") == "LEASE_LOST"


async def test_a_ghost_cannot_suspend(desk):
    ghost = await desk.running("a")
    await desk.release(ghost)
    live = await desk.take("a")
    assert await desk.suspend(ghost) == "LEASE_LOST"
    assert desk.job("a")["state"] == "running"
    assert await desk.complete(live) == "completed"
    assert await desk.suspend(Lease("none", "t", 1, 1, "q", "t", 1, b"", "")) == "NOT_FOUND"


async def test_a_cancel_request_wins(desk):
    lease = await desk.running("a")
    await desk.operate("cancel", "a")
    assert await desk.suspend(lease) == "cancelled"


async def test_a_suspended_job_is_cancelled_and_retried(desk):
    lease = await desk.running("a")
    await desk.step(lease, charge=b"1")
    await desk.suspend(lease)
    assert await desk.operate("cancel", "a") == "cancelled"
    with pytest.raises(WrongState, match="is cancelled"):
        await desk.signal("a")
    await desk.operate("retry", "a")
    assert "awaits" not in desk.job("a")
    lease = await desk.take("a")
    assert await desk.steps(lease) == {"charge": ("step", b"1")}
    assert (await desk.suspend(lease)).startswith("scheduled")


async def test_a_promote_ends_a_sleep(desk):
    await desk.suspend(await desk.running("a"), "nap", 3 * DAY, "sleep")
    await desk.operate("promote", "a")
    assert await desk.steps(await desk.take("a")) == {"nap": ("sleep", b"null")}


async def test_a_promote_does_not_end_a_wait_for_a_signal(desk):
    await desk.suspend(await desk.running("a"))
    before = desk.everything()
    with pytest.raises(WrongState, match="waits for the signal go: send it, or reschedule"):
        await desk.operate("promote", "a")
    assert desk.everything() == before


@pytest.mark.parametrize(("kind", "kept"), [("sleep", ("sleep", b"null")), ("signal", ("timeout", b""))])
async def test_a_reschedule_to_now_ends_the_wait(desk, kind, kept):
    await desk.suspend(await desk.running("a"), "go", 3 * DAY, kind)
    await desk.operate("reschedule", "a", None, f"delay={DAY * 1000}")
    assert desk.job("a")["awaits"].startswith(f"{kind} go ")
    await desk.operate("reschedule", "a", None, "delay=0")
    assert await desk.steps(await desk.take("a")) == {"go": kept}


async def test_a_job_that_was_retried_while_nothing_is_awaited_falls_due_as_usual(desk):
    """What an earlier attempt awaited has no effect on the backoff of a later one."""
    lease = await desk.running("a")
    await desk.suspend(lease, "nap", 1, "sleep")
    desk.elapse(2)
    await desk.fail(await desk.take("a"))
    desk.raw.hset(keys.job(desk.base, "a"), "awaits", "signal go 5")  # no script leaves it there
    desk.elapse(60)
    lease = await desk.take("a")
    assert await desk.steps(lease) == {"nap": ("sleep", b"null")}


async def test_the_wait_of_a_job_keeps_its_key(desk):
    await desk.suspend(await desk.running("a", "key=k"))
    (answer,) = await desk.submit("b", rules="key=k")
    assert (answer.id, answer.created) == ("a", False)


async def test_new_arguments_end_the_wait(desk):
    rules = "key=k on_conflict=replace"
    await desk.suspend(await desk.running("a", rules))
    (answer,) = await desk.submit("b", rules=rules)
    assert (answer.id, answer.replaced) == ("a", True)
    assert "awaits" not in desk.job("a")
    await desk.signal("a")
    lease = await desk.take("a")
    assert await desk.steps(lease) == {"go": ("signal", b"true")}


async def test_a_job_does_not_wait_before_a_newer_one_of_its_key(desk):
    lease = await desk.running("a", "key=k on_conflict=replace")
    await desk.submit("b", rules="key=k on_conflict=replace")
    assert await desk.suspend(lease) == "cancelled"
    await desk.take("b")


async def test_a_job_with_all_its_steps_dies_of_the_next_wait(desk):
    lease = await desk.running("a")
    for i in range(0, 1000, 100):
        await desk.step(lease, **{f"s{n}": b"1" for n in range(i, i + 100)})
    assert await desk.suspend(lease) == "dead"
    assert desk.job("a")["error"].startswith("steps_full job a has 1000 steps")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("nap", "n", "1"), "kind nap: use sleep, signal or call"),
        (("sleep", "a b", "1"), "step or signal a b: use 1 to 128 of"),
        (("sleep", "n", ""), "delay : use ms, at most 14 digits"),
        (("signal", "n", "-1"), "delay -1: use ms, at most 14 digits"),
        (("signal", "n", "9" * 15), "delay 9+: use ms"),
    ],
)
async def test_invalid_arguments_are_refused(desk, words, fault):
    lease = await desk.running("a")
    call = steps.suspend(desk.base, [Suspension(lease, "sleep", "good", 1)])
    own = call._replace(commands=((*call.commands[0], "a", lease.token, *words),))
    before = desk.everything()
    with pytest.raises(Invalid, match=fault):
        await desk.run(own)
    assert desk.everything() == before


async def test_the_longest_sleep_is_a_wait_for_ever(desk):
    lease = await desk.running("a")
    assert await desk.suspend(lease, "nap", NEVER / 1000, "sleep") == f"scheduled {NEVER}"


async def test_a_job_suspended_twice_in_a_call_is_suspended_once(desk):
    lease = await desk.running("a")
    own = script("suspend")
    words = ("a", lease.token, "signal", "one", "", "a", lease.token, "signal", "two", "")
    assert desk.raw.eval(own.text, 1, desk.base, *words) == [f"scheduled {NEVER}"] * 2
    assert desk.job("a")["awaits"].startswith("signal one ")


async def test_a_read_shows_the_steps_and_the_wait(desk):
    lease = await desk.running("a")
    await desk.step(lease, charge=b'{"paid":5}')
    await desk.suspend(lease)
    job = await desk.run(reads.get(desk.base, "a"))
    (step,) = job.steps
    assert (step.name, step.kind, step.bytes) == ("charge", "step", 10)
    assert (job.awaits, job.due_at, job.last_error) == ("signal go", None, None)
    await desk.signal("a", value=b"1")
    job = await desk.run(reads.get(desk.base, "a"))
    assert (job.awaits, [(one.name, one.kind) for one in job.steps]) == (
        None,
        [("charge", "step"), ("go", "signal")],
    )


@pytest.mark.parametrize(("kind", "seconds"), [("signal", None), ("signal", 600), ("sleep", 600)])
async def test_a_repair_puts_a_suspended_job_back_and_its_wait_goes_on(desk, kind, seconds):
    first = await desk.suspend(await desk.running("a"), "go", seconds, kind)
    desk.raw.delete(keys.structure(desk.base, "scheduled"))
    (found,) = await desk.run(verbs.repair(desk.base, "mend", [("job", "a")]))
    assert found.startswith("placed scheduled ")
    assert f"scheduled {desk.raw.zscore(keys.structure(desk.base, 'scheduled'), 'a'):.0f}" == first
    await desk.signal("a")
    assert await desk.steps(await desk.take("a")) == {"go": ("signal", b"true")}
