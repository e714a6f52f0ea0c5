"""complain: a worker that was summoned could not be invoked."""

import pytest

from sublet.errors import Invalid, NotFound, TooMany
from sublet.operations import pools
from sublet.protocol import keys


async def complain(desk, summons="a" * 22 + ".1", n=1, reason="it answers 503", pool="p"):
    return await desk.run(pools.complain(desk.base, pool, summons=summons, n=n, reason=reason))


def complaints(desk):
    return desk.raw.hmget(keys.pool(desk.base, "p"), "failed", "reason", "complained")


async def test_a_complaint_is_counted_and_its_text_is_stored(desk):
    await desk.pool()
    assert await complain(desk, n=3) == "noted"
    assert complaints(desk) == ["3", "it answers 503", "a" * 22 + ".1"]
    assert abs(int(desk.raw.hget(keys.pool(desk.base, "p"), "failed_at")) - desk.now()) < 60_000


async def test_a_repeated_complaint_is_counted_once(desk):
    await desk.pool()
    await complain(desk)
    before = desk.everything()
    assert await complain(desk) == "noted"
    assert desk.everything() == before
    await complain(desk, summons="b" * 22 + ".1", reason="it hangs")
    assert complaints(desk) == ["2", "it hangs", "b" * 22 + ".1"]


async def test_a_failed_summons_still_counts_until_it_expires(desk):
    """Otherwise an unreachable target would be called again and again, as fast as jobs arrive."""
    await desk.pool("p", 0, "queues=q invoker=none slots=1")
    await desk.submit("a")
    given = await desk.summon(1, summons="a" * 22)
    await complain(desk)
    assert (given.given, (await desk.summon(1)).given, (await desk.summon()).sum["summoned"]) == (1, 0, 1)


async def test_a_complaint_about_a_missing_pool_is_refused(desk):
    before = desk.everything()
    with pytest.raises(NotFound, match="no pool p"):
        await complain(desk)
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"reason": "x" * 301}, Invalid),
        ({"pool": ""}, Invalid),
        ({"pool": "a b"}, Invalid),
        ({"summons": ""}, Invalid),
        ({"summons": "s" * 129}, Invalid),
        ({"n": 101}, TooMany),
        ({"n": -1}, TooMany),
        ({"n": 0.5}, TooMany),
        ({"n": "nan"}, TooMany),
    ],
)
async def test_invalid_arguments_are_refused_and_change_nothing(desk, wrong, error):
    await desk.pool()
    before = desk.everything()
    with pytest.raises(error):
        await complain(desk, **wrong)
    assert desk.everything() == before


async def test_many_summonses_may_fail_at_once_with_long_messages(desk):
    await desk.pool()
    await complain(desk, n=100, reason="w" * 300)
    assert complaints(desk)[:2] == ["100", "w" * 300]
