"""signal: an event reaches its job, whether it comes before, during or after the wait."""

from itertools import permutations

import pytest

from sublet.errors import Invalid, NotFound, StepsFull, WrongState
from sublet.protocol import keys
from sublet.steps.calls import STEP_MAX


@pytest.mark.parametrize("state", ["scheduled", "queued", "running", "tried"])
async def test_a_signal_before_the_wait_is_kept(desk, state):
    await desk.submit("a", rules="delay=60000" if state == "scheduled" else "")
    lease = None if state in ("scheduled", "queued") else await desk.take("a")
    if state == "tried":
        await desk.fail(lease)
    assert await desk.signal("a", value=b'{"by":"ada"}') == "kept"
    assert desk.job("a")["state"] == {"tried": "scheduled"}.get(state, state)
    if state == "running":
        await desk.release(lease)
    if state in ("scheduled", "tried"):
        await desk.operate("promote", "a")
    lease = await desk.take("a")
    assert await desk.steps(lease) == {"go": ("signal", b'{"by":"ada"}')}
    assert await desk.suspend(lease) == "queued"


async def test_a_signal_queues_the_job_that_waits_for_it(desk):
    await desk.suspend(await desk.running("a"))
    assert await desk.signal("a", "other") == "kept"
    assert desk.job("a")["state"] == "scheduled"
    assert await desk.signal("a") == "kept"
    assert desk.members("queue:q") == ["a"]
    assert desk.members("scheduled") == []
    assert desk.raw.llen(keys.wake(desk.base, "q")) == 1


async def test_a_signal_of_its_name_ends_a_sleep(desk):
    await desk.suspend(await desk.running("a"), "nap", 60, "sleep")
    await desk.signal("a", "nap")
    assert await desk.steps(await desk.take("a")) == {"nap": ("signal", b"true")}
    assert desk.job("a")["steps"] == "1 7"


async def test_a_repeated_signal_is_kept_once(desk):
    await desk.suspend(await desk.running("a"))
    assert [await desk.signal("a", by="ada") for _ in range(3)] == ["kept"] * 3
    await desk.take("a")
    assert await desk.signal("a", by="ada") == "kept"
    entries = desk.raw.xrange(keys.audit(desk.base))
    assert [(entry["by"], entry["verb"], entry["what"], entry["order"]) for _, entry in entries] == [
        ("ada", "signal", "a", "go")
    ]


async def test_another_value_is_refused(desk):
    await desk.submit("a")
    await desk.signal("a", value=b"1")
    with pytest.raises(WrongState, match=r"job a has kept go \(signal\) for 0 s: a step is kept once"):
        await desk.signal("a", value=b"2")
    assert desk.job("a")["step:go"].endswith("\n1")


async def test_a_signal_after_the_limit_is_refused(desk):
    await desk.suspend(await desk.running("a"), seconds=60)
    desk.elapse(61)
    await desk.reap()
    with pytest.raises(WrongState, match=r"has kept go \(timeout\)"):
        await desk.signal("a")
    assert await desk.steps(await desk.take("a")) == {"go": ("timeout", b"")}


async def test_an_overdue_wait_that_nobody_has_ended_still_takes_the_signal(desk):
    await desk.suspend(await desk.running("a"), seconds=60)
    desk.elapse(61)
    await desk.signal("a")
    assert await desk.steps(await desk.take("a")) == {"go": ("signal", b"true")}


@pytest.mark.parametrize("end", ["completed", "dead", "cancelled"])
async def test_a_job_that_has_ended_takes_no_signal(desk, end):
    lease = await desk.running("a")
    if end == "cancelled":
        await desk.operate("cancel", "a")
    await (desk.complete(lease) if end == "completed" else desk.fail(lease, again=False))
    before = desk.everything()
    with pytest.raises(WrongState, match=f"job a is {end}: signal takes one that has not ended"):
        await desk.signal("a")
    assert desk.everything() == before
    with pytest.raises(NotFound):
        await desk.signal("none")


async def test_a_signal_has_the_limits_of_a_step(desk):
    lease = await desk.running("a")
    with pytest.raises(Invalid, match="step or signal go has 65537 bytes"):
        await desk.signal("a", value=b"x" * (STEP_MAX + 1))
    with pytest.raises(Invalid, match="step or signal a b: use"):
        await desk.signal("a", "a b")
    for i in range(0, 1000, 100):
        await desk.step(lease, **{f"s{n}": b"1" for n in range(i, i + 100)})
    before = desk.everything()
    with pytest.raises(StepsFull):
        await desk.signal("a", by="ada")
    assert desk.everything() == before


async def test_a_signal_does_not_change_the_revision(desk):
    await desk.submit("a")
    before = desk.revision("a")
    await desk.signal("a")
    assert desk.revision("a") == before
    assert await desk.operate("cancel", "a", before) == "cancelled"


EVENTS = ("wait", "signal", "crash", "limit")


@pytest.mark.parametrize("order", [*permutations(EVENTS)], ids="-".join)
async def test_every_order_of_wait_signal_crash_and_limit_ends_the_wait_once(desk, order):
    """Whatever comes first decides, the job waits for nothing at the end, and its step never changes again."""
    lease = await desk.running("a", lease=30)
    outcome, waits, limit = None, False, False
    for event in order:
        if event == "wait" and lease:
            answer = await desk.suspend(lease, seconds=60)
            assert answer.startswith("scheduled" if outcome is None else "queued")
            lease, waits = None, outcome is None
            if limit and waits:
                desk.elapse(60)
        elif event == "signal":
            if outcome == "timeout":
                with pytest.raises(WrongState):
                    await desk.signal("a")
            else:
                assert await desk.signal("a") == "kept"
                outcome, waits = "signal", False
        elif event == "crash" and lease:
            desk.elapse(31)
            assert await desk.reap() == (1, 0, False)
            lease = await desk.take("a", lease=30)
        elif event == "limit" and waits:
            desk.elapse(61)
            assert (await desk.reap())[1] == 1
            outcome, waits = "timeout", False
    if lease is None:
        if waits:
            desk.elapse(61)
            outcome = "timeout"
        lease = await desk.take("a")
    kept = (await desk.steps(lease)).get("go")
    assert (kept and kept[0]) == outcome
    assert "awaits" not in desk.job("a")
    if kept:
        assert await desk.suspend(lease) == "queued"
        lease = await desk.take("a")
    assert await desk.complete(lease) == "completed"
