"""publish: workers put their tasks into the catalogue, and renew them."""

import pytest

from sublet.errors import Invalid, TooMany
from sublet.model import Description
from sublet.protocol import keys, verbs

HOUR = 3600
OLD, NEW = "aa" * 8, "bb" * 8


async def publish(desk, *tasks, starting=True):
    found = [Description(name, digest, f"of {digest}".encode()) for name, digest in tasks]
    return await desk.run(verbs.publish(desk.base, found, starting=starting))


def held(desk):
    return {name: text.partition(" ")[0] for name, text in desk.raw.hgetall(keys.tasks(desk.base)).items()}


def changes(desk):
    return int(desk.raw.hget(desk.base, "published") or 0)


async def test_a_task_is_stored_with_its_digest_and_its_description(desk):
    assert await publish(desk, ("t", OLD), ("u", NEW)) == ["written", "written"]
    assert desk.raw.hgetall(keys.tasks(desk.base)) == {"t": f"{OLD} of {OLD}", "u": f"{NEW} of {NEW}"}
    assert desk.raw.zcard(keys.catalogue(desk.base)) == changes(desk) == 2


async def test_the_same_again_writes_nothing(desk):
    await publish(desk, ("t", OLD))
    before = desk.everything()
    assert await publish(desk, ("t", OLD)) == ["kept"]
    assert await publish(desk, ("t", OLD), starting=False) == ["kept"]
    assert desk.everything() == before


async def test_the_worker_that_started_last_decides_the_description(desk):
    await publish(desk, ("t", OLD), ("only-old", OLD))
    assert await publish(desk, ("t", NEW), ("only-new", NEW)) == ["written", "written"]
    assert await publish(desk, ("t", OLD), ("only-old", OLD), starting=False) == ["kept", "kept"]
    assert held(desk) == {"t": NEW, "only-old": OLD, "only-new": NEW}


async def test_a_description_that_no_worker_renews_is_replaced_after_three_hours(desk):
    """A crashed worker of an old version may have started last in a rolling deploy."""
    await publish(desk, ("t", NEW))
    await publish(desk, ("t", OLD))
    desk.elapse(2 * HOUR)
    assert await publish(desk, ("t", NEW), starting=False) == ["kept"]
    desk.elapse(2 * HOUR)
    assert await publish(desk, ("t", NEW), starting=False) == ["written"]
    assert held(desk) == {"t": NEW}


async def test_a_renewed_description_stays(desk):
    await publish(desk, ("t", NEW))
    for _ in range(3):
        desk.elapse(2 * HOUR)
        assert await publish(desk, ("t", NEW), starting=False) == ["kept"]
        assert await publish(desk, ("t", OLD), starting=False) == ["kept"]
    assert held(desk) == {"t": NEW}
    assert changes(desk) == 1


async def test_a_task_that_no_worker_renews_is_removed_after_seven_days(desk):
    await publish(desk, ("gone", OLD), ("t", OLD))
    desk.elapse(6 * 24 * HOUR)
    await publish(desk, ("t", OLD), starting=False)
    desk.elapse(1.5 * 24 * HOUR)
    await publish(desk, ("t", OLD), starting=False)
    assert held(desk) == {"t": OLD}
    assert desk.raw.zrange(keys.catalogue(desk.base), 0, -1) == ["t"]
    assert changes(desk) == 3


async def test_the_catalogue_has_at_most_a_thousand_tasks(desk):
    for start in range(0, 1000, 100):
        names = [(f"t{i}", OLD) for i in range(start, start + 100)]
        assert await publish(desk, *names) == ["written"] * 100
    assert await publish(desk, ("new", OLD), ("t1", NEW)) == ["full", "written"]
    assert len(held(desk)) == desk.raw.zcard(keys.catalogue(desk.base)) == 1000


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        ([Description("", OLD, b"")], Invalid),
        ([Description("a b", OLD, b"")], Invalid),
        ([Description("t", "aa", b"")], Invalid),
        ([Description("t", "a" * 129, b"")], Invalid),
        ([Description("t", "no digest, 16 letters", b"")], Invalid),
        ([Description("t", OLD, b"x" * 8193)], Invalid),
        ([Description("t", OLD, b"")] * 101, TooMany),
        ([Description("fits", OLD, b""), Description("", OLD, b"")], Invalid),
    ],
)
async def test_invalid_arguments_are_refused_and_change_nothing(desk, tasks, error):
    before = desk.everything()
    with pytest.raises(error):
        await desk.run(verbs.publish(desk.base, tasks, starting=True))
    assert desk.everything() == before


async def test_the_longest_description_is_stored(desk):
    assert await desk.run(verbs.publish(desk.base, [Description("t", OLD, b"x" * 8192)], starting=True)) == [
        "written"
    ]
