"""pick: get schedules with a due occurrence; which callers learn of them, and when."""

import pytest

from sublet.errors import TooMany
from sublet.protocol import keys, verbs
from sublet.schedules import firing
from sublet.schedules.firing import Pick


async def names(desk, limit=50):
    return [pick.name for pick in (await desk.pick(limit)).picks]


def soon(desk, ms):
    return desk.now() + ms


async def test_due_occurrences_are_picked_in_the_order_of_their_due_times(desk):
    for name, occurrence in (("b", 2000), ("a", 1000), ("c", 3000)):
        await desk.put(name, occurrence=occurrence, plan=b'{"n":"%s"}' % name.encode(), overlap="skip")
    await desk.put("later", occurrence=soon(desk, 60_000))
    picked = await desk.pick()
    assert picked.picks[0] == Pick("a", "1", 1000, b'{"n":"a"}', "skip")
    assert [pick.name for pick in picked.picks] == ["a", "b", "c"]
    assert (picked.more, abs(picked.now - desk.now()) < 60_000) == (False, True)


async def test_a_picked_occurrence_is_reserved_for_two_seconds(desk):
    await desk.put()
    assert await names(desk) == ["s"]
    assert await names(desk) == []
    desk.elapse(2)
    assert await names(desk) == ["s"]


async def test_schedules_that_the_caller_cannot_read_are_left_to_others(desk):
    """Only at the revision that it saw, and beyond the limit."""
    for i in range(4):
        await desk.put(f"n{i}", occurrence=1000 + i)
    picked = await desk.run(firing.pick(desk.base, 2, [("n0", "1"), ("n2", "1"), ("n1", "7")]))
    assert [one.name for one in picked.picks] == ["n1", "n3"]
    assert await names(desk) == ["n0", "n2"], "they are not reserved"
    with pytest.raises(TooMany, match="a call takes 0 to 100"):
        await desk.run(firing.pick(desk.base, 2, [(f"n{i}", "1") for i in range(101)]))


async def test_a_pick_stops_at_its_limit_and_reports_whether_more_may_be_due(desk):
    for i in range(5):
        await desk.put(f"n{i}", occurrence=1000 + i)
    first = await desk.pick(2)
    assert ([pick.name for pick in first.picks], first.more) == (["n0", "n1"], True)
    assert await names(desk, 2) == ["n2", "n3"]
    last = await desk.pick(2)
    assert ([pick.name for pick in last.picks], last.more) == (["n4"], False)


@pytest.mark.parametrize("limit", [51, -1, 1.5, "nan", "many", "", "-0"])
async def test_a_limit_is_0_to_50(desk, limit):
    await desk.put()
    before = desk.everything()
    with pytest.raises(TooMany, match="a call takes 0 to 50"):
        await desk.pick(limit)
    assert desk.everything() == before


async def test_a_pick_without_due_occurrences_writes_nothing(desk):
    await desk.put(occurrence=soon(desk, 60_000))
    before = desk.everything()
    assert (await desk.pick()).picks == []
    assert desk.everything() == before


async def test_a_name_without_a_schedule_is_dropped(desk):
    await desk.put()
    desk.raw.zadd(keys.schedules(desk.base), {"ghost": 1, "other": 2})
    desk.raw.set(keys.schedule(desk.base, "other"), "no schedule")
    assert await names(desk) == ["s"]
    assert desk.raw.zrange(keys.schedules(desk.base), 0, -1) == ["s"]


# which calls report a due occurrence


async def test_claims_and_ticks_report_a_due_occurrence_until_it_is_picked(desk):
    await desk.put()
    tick = verbs.reap(desk.base, limit=10, by="tick")
    assert (await desk.ask()).come
    assert (await desk.ask(0)).come
    assert (await desk.run(tick)).come
    await desk.pick()
    assert not (await desk.ask()).come
    assert not (await desk.run(tick)).come


async def test_a_due_occurrence_sets_no_alarm_and_makes_no_worker_spin(desk):
    await desk.put()
    assert await desk.ask(worker="one") == ([], 2.0, True, ())
    assert not desk.raw.exists(keys.alarm(desk.base))
    await desk.pick()
    claimed = await desk.ask(worker="one")
    assert claimed.come is False
    assert 1 < claimed.next_in <= 2, "it is due again if it is not fired"


async def test_one_idle_worker_gets_the_time_of_the_next_occurrence_and_the_others_2_s(desk):
    await desk.put(occurrence=soon(desk, 1500))
    claimed = await desk.ask(worker="one")
    assert 0 < claimed.next_in <= 1.5
    assert desk.raw.get(keys.alarm(desk.base)).endswith(" one")
    assert (await desk.ask(worker="two")).next_in == 2.0
    assert (await desk.ask(worker="one")).next_in <= 1.5
    desk.elapse(1.5)
    assert (await desk.ask(worker="two")).come


async def test_the_alarm_is_the_earlier_of_a_due_job_and_an_occurrence(desk):
    await desk.submit("later", rules="delay=1800")
    await desk.put(occurrence=soon(desk, 1000))
    assert (await desk.ask()).next_in <= 1.0
    await desk.submit("sooner", rules="delay=500")
    assert (await desk.ask()).next_in <= 0.5


async def test_a_distant_occurrence_sets_no_alarm(desk):
    await desk.put(occurrence=soon(desk, 60_000))
    assert await desk.ask() == ([], 2.0, False, ())
    assert not desk.raw.exists(keys.alarm(desk.base))


async def test_a_repeated_claim_reports_no_due_occurrence(desk):
    await desk.submit("a")
    await desk.ask(claim_id="c" * 22)
    await desk.put()
    assert (await desk.ask(claim_id="c" * 22)).come is False


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("plan", b"[" * 4096),
        ("plan", b"\xff"),
        ("occurrence", b"abc"),
        ("occurrence", b"9" * 19),
        ("overlap", b"\xff"),
    ],
)
async def test_an_unreadable_schedule_is_skipped_and_a_claim_fires_the_others(desk, store, field, value):
    for name in ("bad", "s"):
        await desk.put(name, plan=b'{"when":{"every":3600}}', occurrence=3_600_000)
    desk.raw.hset(keys.schedule(desk.base, "bad"), field, value)
    for _ in range(2):
        claimed = await store.claim(worker="w", queues=["q"], n=5, lease=30)
        desk.raw.zadd(keys.schedules(desk.base), {"bad": 1})
        assert len(claimed.leases) <= 1
    assert desk.schedule()["fired"] == "1"
