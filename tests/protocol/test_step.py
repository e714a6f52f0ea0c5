"""step: what a task has kept is there for its later attempts, and is kept once."""

import pytest

from sublet.errors import Invalid, LeaseLost, NotFound, StepsFull, TooMany
from sublet.model import Lease
from sublet.protocol.scripts import script
from sublet.steps import calls as steps
from sublet.steps.calls import STEP_MAX


async def test_a_kept_step_is_there_for_the_next_attempt(desk):
    first = await desk.running("a")
    before = desk.now()
    assert await desk.step(first, charge=b'{"paid":5}') == {}
    await desk.fail(first)
    await desk.operate("promote", "a")
    second = await desk.take("a")
    (kept,) = (await desk.run(steps.step(desk.base, second, {}))).values()
    assert (kept.kind, kept.value) == ("step", b'{"paid":5}')
    assert before <= kept.at_ms <= desk.now()


async def test_a_step_is_kept_once(desk):
    lease = await desk.running("a")
    await desk.step(lease, charge=b"1")
    again = await desk.step(lease, charge=b"2", other=b"3")
    assert {name: kept.value for name, kept in again.items()} == {"charge": b"1"}
    assert await desk.steps(lease) == {"charge": ("step", b"1"), "other": ("step", b"3")}


async def test_a_signal_of_its_name_is_no_step(desk):
    lease = await desk.running("a")
    await desk.run(steps.signal(desk.base, "a", "charge", b'"free"'))
    assert await desk.step(lease, charge=b"7") == {}
    assert await desk.steps(lease) == {"charge": ("step", b"7")}
    assert desk.job("a")["steps"] == "1 7"


async def test_a_step_named_twice_in_a_call_is_kept_once(desk):
    lease = await desk.running("a")
    own = script("step")
    reply = desk.raw.eval(own.text, 1, desk.base, "a", lease.token, "x", "1", "x", "2")
    assert reply[0] == "kept"
    assert reply[1].endswith(" step\n1")
    assert desk.job("a")["steps"] == "1 2"


async def test_a_ghost_cannot_keep_a_step(desk):
    ghost = await desk.running("a")
    await desk.release(ghost)
    with pytest.raises(LeaseLost):
        await desk.step(ghost, charge=b"1")
    await desk.take("a")
    for call in (desk.step(ghost, charge=b"1"), desk.steps(ghost)):
        with pytest.raises(LeaseLost, match="stop"):
            await call
    assert "step:charge" not in desk.job("a")


async def test_a_finished_and_a_missing_job_keep_no_step(desk):
    lease = await desk.running("a")
    await desk.complete(lease)
    with pytest.raises(LeaseLost):
        await desk.step(lease, charge=b"1")
    with pytest.raises(NotFound):
        await desk.step(Lease("none", "t", 1, 1, "q", "t", 1, b"", ""), charge=b"1")


async def test_an_expired_lease_that_nobody_took_still_keeps_a_step(desk):
    lease = await desk.running("a", lease=1)
    desk.elapse(5)
    assert await desk.step(lease, charge=b"1") == {}


async def test_a_kept_step_begins_the_tries_anew(desk):
    lease = await desk.running("a", "tries=2")
    await desk.fail(lease)
    await desk.operate("promote", "a")
    last = await desk.take("a")
    assert last.tries_left == 0
    await desk.step(last, charge=b"1")
    assert (await desk.fail(last)).startswith("scheduled ")
    await desk.operate("promote", "a")
    again = await desk.take("a")
    assert again.tries_left == 0
    await desk.step(again, charge=b"1")  # it is there: nothing was gained
    assert await desk.fail(again) == "dead"


async def test_a_kept_step_ends_a_row_of_lost_leases(desk):
    await desk.running("a", lease=1)
    desk.elapse(40)
    await desk.reap()
    lease = await desk.take("a", lease=1)
    await desk.step(lease, charge=b"1")
    desk.elapse(40)
    await desk.reap()
    assert desk.job("a")["state"] == "queued"  # at once: it is the first in a row


async def test_completion_drops_the_steps(desk):
    for name, rules in (("plain", ""), ("keeps", "keep=1")):
        lease = await desk.running(name, rules)
        await desk.step(lease, charge=b"1")
        await desk.complete(lease)
        assert [field for field in desk.job(name) if field.startswith("step")] == []


@pytest.mark.parametrize(("how", "kept"), [("", True), ("anew", False)])
async def test_a_retry_goes_on_after_the_steps_or_forgets_them(desk, how, kept):
    lease = await desk.running("a")
    await desk.step(lease, **{f"s{i}": b"1" for i in range(100)})
    await desk.fail(lease, again=False)
    assert await desk.operate("retry", "a", None, "", how) == "queued"
    lease = await desk.take("a")
    assert len(await desk.steps(lease)) == (100 if kept else 0)
    assert ("steps" in desk.job("a")) == kept
    await desk.step(lease, s0=b"2")
    assert (await desk.steps(lease))["s0"] == ("step", b"1" if kept else b"2")


async def test_new_arguments_forget_the_steps(desk):
    rules = "key=k on_conflict=replace"
    lease = await desk.running("a", rules)
    await desk.step(lease, charge=b"1")
    await desk.fail(lease)
    await desk.submit("b", rules=rules)
    assert [field for field in desk.job("a") if field.startswith("step")] == []


async def test_an_erased_job_leaves_nothing(desk):
    lease = await desk.running("a")
    await desk.step(lease, charge=b"1")
    await desk.fail(lease, again=False)
    await desk.operate("erase", "a")
    assert desk.job("a") == {}


async def test_a_step_above_its_limit_is_refused(desk):
    lease = await desk.running("a")
    await desk.step(lease, most=b"x" * STEP_MAX)
    with pytest.raises(
        Invalid, match=f"step or signal more has {STEP_MAX + 1} bytes; it may have {STEP_MAX}: store"
    ):
        await desk.step(lease, more=b"x" * (STEP_MAX + 1))
    assert list(await desk.steps(lease)) == ["most"]


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 129, "."])
async def test_an_invalid_name_is_refused(desk, name):
    lease = await desk.running("a")
    with pytest.raises(Invalid, match=r"step .*: use 1 to 128 of"):
        await desk.step(lease, **{name: b"1"})


async def test_a_job_has_1000_steps_at_most(desk):
    lease = await desk.running("a")
    for i in range(0, 1000, 100):
        await desk.step(lease, **{f"s{n}": b"1" for n in range(i, i + 100)})
    before = desk.job("a")
    with pytest.raises(
        StepsFull, match=r"has 1000 steps of [0-9]+ bytes; it may have 1000 of 1048576: end it"
    ):
        await desk.step(lease, one_more=b"1")
    assert desk.job("a") == before
    assert len(await desk.steps(lease)) == 1000
    assert [*await desk.step(lease, s7=b"1")] == ["s7"]  # what is there needs no room


async def test_the_steps_of_a_job_have_1_mib_at_most(desk):
    lease = await desk.running("a")
    for i in range(15):
        await desk.step(lease, **{f"s{i}": b"x" * STEP_MAX})
    with pytest.raises(StepsFull):
        await desk.step(lease, a=b"1", b=b"x" * STEP_MAX)
    assert len(await desk.steps(lease)) == 15  # all or nothing


async def test_a_call_keeps_100_steps_at_most(desk):
    lease = await desk.running("a")
    with pytest.raises(TooMany):
        await desk.step(lease, **{f"s{n}": b"1" for n in range(101)})
