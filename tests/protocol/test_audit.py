"""The audit: orders that name a person are recorded by the script that carries them out."""

import pytest

from sublet import Changed, Invalid, Unfit
from sublet.operations import pools
from sublet.protocol import keys, verbs
from sublet.schedules import firing
from tests.conftest import SCHEDULE

POOL = "queues=q invoker=none"


def recorded(desk):
    """The audit's entries: who, verb, what, queue, outcome."""
    entries = [fields for _, fields in desk.raw.xrange(keys.audit(desk.base))]
    return [tuple(one[name] for name in ("by", "verb", "what", "queue", "outcome")) for one in entries]


async def orders(desk, by):
    """Give every order once, each twice as a repeated call does."""
    await desk.submit("c", queue="r", rules="delay=1000")
    held = await desk.running("a", lease=60)
    await desk.enlist("w", "life")
    base = desk.base
    put = {**SCHEDULE, "queue": "s"}
    for call in (
        verbs.cancel(base, held.id, 1, by),
        verbs.reschedule(base, "c", 0, "priority=5 at=4102444800000", by),
        verbs.promote(base, "c", 1, by),
        verbs.cancel(base, "c", 2, by),
        verbs.retry(base, "c", 3, by),
        verbs.cancel(base, "c", 4, by),
        verbs.pause(base, "q", 0, by),
        verbs.resume(base, "q", 1, by),
        verbs.configure(base, "q", 2, "jobs=5", by),
        verbs.configure(base, "*", 0, "", by),
        verbs.drain(base, "w", "life", by),
        firing.schedule(base, "s", 0, **put, occurrence=1, due=1, by=by),
        firing.schedule(base, "s", 1, **{**put, "paused": True}, occurrence=1, due=1, by=by),
        firing.schedule(base, "s", 2, **put, occurrence=1, due=1, by=by),
        firing.unschedule(base, "s", 3, by=by),
        pools.pool(base, "p", 0, POOL, "", by),
        pools.pool(base, "p", 1, f"{POOL} max=5", "", by),
        pools.pool(base, "p", 2, "", "", by),
    ):
        assert await desk.run(call) == await desk.run(call)
    await desk.run(verbs.erase(base, "c", 5, by))


async def test_each_order_of_a_person_is_recorded_once(desk):
    await orders(desk, "anna")
    assert recorded(desk) == [
        ("anna", *rest)
        for rest in (
            ("cancel", "a", "q", "requested"),
            ("reschedule", "c", "r", "scheduled 4102444800000 priority=5"),
            ("promote", "c", "r", "queued"),
            ("cancel", "c", "r", "cancelled"),
            ("retry", "c", "r", "queued"),
            ("cancel", "c", "r", "cancelled"),
            ("pause", "q", "q", "paused"),
            ("resume", "q", "q", "resumed"),
            ("configure", "q", "q", "jobs=5"),
            ("configure", "*", "", "no limits"),
            ("drain", "w", "", "requested"),
            ("schedule-put", "s", "s", "created: task t"),
            ("schedule-pause", "s", "s", "paused"),
            ("schedule-resume", "s", "s", "resumed"),
            ("schedule-remove", "s", "s", "removed"),
            ("pool-put", "p", "", "created: queues=q max=10"),
            ("pool-put", "p", "", "changed: queues=q max=5"),
            ("pool-remove", "p", "", "removed"),
            ("erase", "c", "r", "erased"),
        )
    ]


async def test_the_orders_of_a_program_are_not_recorded(desk):
    await orders(desk, "")
    assert not desk.raw.exists(keys.audit(desk.base))


async def test_a_refused_order_is_not_recorded(desk):
    await desk.submit("a")
    with pytest.raises(Changed):
        await desk.run(verbs.cancel(desk.base, "a", 7, "anna"))
    assert recorded(desk) == []


async def test_a_stream_of_a_wrong_type_stops_the_order(desk):
    await desk.submit("a")
    desk.raw.set(keys.audit(desk.base), "of a wrong type")
    with pytest.raises(Unfit):
        await desk.run(verbs.cancel(desk.base, "a", 0, "anna"))
    assert desk.job("a")["state"] == "queued"


async def test_an_order_of_several_calls_is_recorded_once(desk):
    for order in ("a" * 22, "a" * 22, "b" * 22):
        call = verbs.audit(desk.base, order, "anna", "retry", "task=t", "q", "5 jobs found")
        assert await desk.run(call) == "recorded"
    assert recorded(desk) == [("anna", "retry", "task=t", "q", "5 jobs found")] * 2


async def test_what_came_of_an_order_replaces_what_was_found(desk):
    for order, outcome in (("a" * 22, "5 found"), ("b" * 22, "1 found"), ("a" * 22, "queued 4 of 5")):
        for _ in range(2):  # repeated, it is one entry
            await desk.run(verbs.audit(desk.base, order, "anna", "retry", "task=t", "q", outcome))
    assert recorded(desk) == [
        ("anna", "retry", "task=t", "q", "1 found"),
        ("anna", "retry", "task=t", "q", "queued 4 of 5"),
    ]


@pytest.mark.parametrize("other", [{"by": "ben"}, {"verb": "erase"}, {"what": "all"}, {"queue": "r"}])
async def test_an_entry_of_another_order_is_never_replaced(desk, other):
    """Whoever continues an order names it: by mistake, or to hide another."""
    entry = {"by": "anna", "verb": "retry", "what": "task=t", "queue": "q"}
    for one in (entry, entry | other):
        await desk.run(verbs.audit(desk.base, "a" * 22, **one, outcome=f"{one['by']} queued 5 of 5"))
    assert len(recorded(desk)) == 2


@pytest.mark.parametrize("wrong", [{"by": ""}, {"verb": "a b"}, {"order": ""}, {"queue": "a b"}])
async def test_what_cannot_be_an_entry_is_refused(desk, wrong):
    entry = {"order": "a" * 22, "by": "anna", "verb": "retry", "what": "all", "queue": "", "outcome": "1"}
    with pytest.raises(Invalid, match="order and verb"):
        await desk.run(verbs.audit(desk.base, **entry | wrong))


async def test_texts_are_cut_and_the_stream_is_capped(desk):
    await desk.run(verbs.audit(desk.base, "a" * 22, "n" * 500, "retry", "w" * 500, "", "o" * 500))
    assert [len(part) for part in recorded(desk)[0]] == [128, 5, 200, 0, 200]
    for n in range(1300):
        await desk.run(verbs.audit(desk.base, f"{n:022}", "anna", "retry", "all", "", "1 job found"))
    assert 1000 <= desk.raw.xlen(keys.audit(desk.base)) <= 1100
