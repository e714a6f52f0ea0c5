"""pool: store the settings of a pool, or remove it with empty settings."""

import pytest

from sublet.errors import Changed, Invalid, NotFound
from sublet.model import Card
from sublet.protocol import keys, verbs

WORK = "https://example.org/work"


def kept(desk, name="p"):
    return desk.raw.hget(keys.pools(desk.base), name)


async def test_a_pool_is_stored_unchanged(desk):
    assert await desk.pool("p", 0, "queues=a,b invoker=http max=3", WORK) == "created"
    assert kept(desk) == f"1 queues=a,b invoker=http max=3\n{WORK}"
    assert await desk.pool("p", 1, "queues=a  invoker=process ", "x") == "changed"
    assert kept(desk) == "2 queues=a invoker=process\nx"


async def test_a_repeated_put_gets_the_same_reply_and_changes_nothing(desk):
    await desk.pool()
    before = desk.everything()
    assert await desk.pool() == "created"
    assert desk.everything() == before


@pytest.mark.parametrize("revision", [0, 2, 99])
async def test_a_change_carries_the_revision_that_its_caller_read(desk, revision):
    await desk.pool()
    before = desk.everything()
    for settings in ("queues=q invoker=http", ""):
        with pytest.raises(Changed, match=f"at revision 1, not {revision}: read it again"):
            await desk.pool("p", revision, settings)
    assert desk.everything() == before


async def test_a_change_keeps_crew_and_summonses(desk):
    await desk.pool("p", 0, "queues=q invoker=none slots=1")
    await desk.submit(*"abcdefghijklmno")
    await desk.summon(5, summons="s" * 22)
    await desk.join("w", "s" * 22 + ".1")
    await desk.pool("p", 1, "queues=q invoker=none slots=1 max=20")
    looked = await desk.summon()
    assert (looked.sum["crew"], looked.sum["summoned"], looked.settings) == (
        1,
        2,
        "queues=q invoker=none slots=1 max=20",
    )


async def test_a_worker_whose_queues_left_the_pool_drains_and_another_is_owed(desk):
    """For a worker that has arrived, one that is on its way, and one that was not summoned."""

    async def seen(worker, summons=""):
        return await desk.run(
            verbs.enlist(desk.base, Card(worker, "1", "", b'{"queues": ["q"]}', "p", summons))
        )

    await desk.pool("p", 0, "queues=q,r invoker=none slots=1 wait=1")
    await desk.pool("p", 1, "queues=q invoker=none slots=1 wait=1")
    await desk.submit("a", "b", "c")
    await desk.summon(3, summons="s" * 22)
    assert [await seen("came", "s" * 22 + ".1"), await seen("alone")] == ["work", "work"]
    await desk.pool("p", 2, "queues=r invoker=none slots=1 wait=1")
    await desk.submit(*"defghijk", queue="r")
    desk.elapse(1)
    first = await desk.summon(1)
    assert (first.given, first.sum["crew"], first.sum["rate"]) == (1, 0, 0), (
        "the averages were those of other queues"
    )
    assert [await seen(worker, "s" * 22 + f".{i}") for i, worker in enumerate(("came", "late"), 1)] == [
        "drain",
        "drain",
    ]
    assert await seen("alone") == "work", "it was not summoned, and may continue"
    looked = (await desk.summon()).sum
    assert (looked["crew"], looked["summoned"]) == (0, 1)


async def test_workers_stay_when_the_pool_loses_other_queues(desk):
    await desk.pool("p", 0, "queues=q,r invoker=none")
    await desk.join("w")
    await desk.pool("p", 1, "queues=q invoker=none")
    assert (await desk.summon()).sum["crew"] == 1


async def test_a_shorter_arrive_setting_applies_to_open_summonses(desk):
    await desk.pool("p", 0, "queues=q invoker=none arrive=60000")
    await desk.submit("a")
    await desk.summon(1)
    await desk.pool("p", 1, "queues=q invoker=none arrive=5000")
    assert (await desk.summon(1)).given == 0
    desk.elapse(6)
    assert (await desk.summon(1)).given == 1


async def test_a_removed_pool_leaves_no_data(desk):
    await desk.pool("p", 0, "queues=q invoker=none slots=1")
    await desk.submit("a", "b")
    await desk.summon(5, summons="s" * 22)
    await desk.join("w")
    assert await desk.pool("p", 1, "") == await desk.pool("p", 1, "") == "removed"
    b = desk.base
    assert desk.raw.exists(keys.pools(b), keys.pool(b, "p"), keys.crew(b, "p"), keys.summons(b, "p")) == 0
    assert await desk.join("late", "s" * 22 + ".1") == "drain"
    assert (await desk.summon(leaver="w")).word == "leave"
    assert await desk.join("w") == "work", "it was not summoned, and may continue"
    assert not desk.raw.exists(keys.crew(b, "p"))


async def test_a_missing_name_cannot_be_removed(desk):
    with pytest.raises(NotFound, match="no pool p"):
        await desk.pool("p", 0, "")


async def test_a_tick_returns_the_count_of_pools(desk):
    await desk.pool("one")
    await desk.pool("two")
    assert (await desk.run(verbs.reap(desk.base, limit=10, by="tick"))).pools == 2


MANY = ",".join(f"q{i}" for i in range(32))


@pytest.mark.parametrize(
    "settings",
    [
        f"queues={MANY} invoker=http",
        "queues=q invoker=lambda min=0 max=0",
        "min=5 max=5 invoker=none queues=q",
        "queues=q invoker=process min=0 max=1000 wait=1 slots=1 linger=0 arrive=1",
        f"queues={'q' * 128} invoker=none wait=99999999999999",
    ],
)
async def test_valid_settings_are_accepted(desk, settings):
    assert await desk.pool("p", 0, settings, "x" * 1024) == "created"


@pytest.mark.parametrize(
    "settings",
    [
        "queues=q", "invoker=none", "queues= invoker=none", "queues=q, invoker=none", "queues=q,q invoker=none",
        "queues=a/b invoker=none", f"queues={MANY},more invoker=none", "queues=q invoker=kubernetes", "queues=q invoker=",
        "queues=q invoker=none max=1001", "queues=q invoker=none min=11", "queues=q invoker=none min=2 max=1",
        "queues=q invoker=none wait=0", "queues=q invoker=none slots=0", "queues=q invoker=none arrive=0",
        "queues=q invoker=none max=-1", "queues=q invoker=none max=1.5", "queues=q invoker=none max=nan",
        "queues=q invoker=none max=1 max=2", "queues=q invoker=none speed=5", "queues=q invoker=none max",
        "queues=q invoker=none MAX=5", "queues=q invoker=none max=999999999999999", "nonsense",
    ],
)  # fmt: skip
async def test_invalid_settings_are_refused_and_change_nothing(desk, settings):
    before = desk.everything()
    with pytest.raises(Invalid, match=r"setting .* for a pool|a pool needs queues and an invoker"):
        await desk.pool("p", 0, settings)
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("name", "target"), [("", ""), ("a b", ""), ("p" * 129, ""), ("p", "x" * 1025), ("p", "a\nb")]
)
async def test_an_invalid_name_or_target_is_refused(desk, name, target):
    with pytest.raises(Invalid, match="name a pool with 1 to 128 of"):
        await desk.pool(name, 0, "queues=q invoker=none", target)
    assert not desk.raw.exists(keys.pools(desk.base))
