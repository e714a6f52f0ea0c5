"""Stored pools: put, read and removed by plans that several clients may run at once. See also test_summon.py."""

import asyncio
from datetime import UTC, datetime

import pytest

from sublet.errors import Changed, Invalid, NotFound
from sublet.model import Card
from sublet.operations import pools
from sublet.operations.pool import HIDDEN, Pool, pool_from, shown, sum_from
from sublet.protocol import keys
from sublet.protocol.reads import moment

IMAGES = Pool(name="images", queues=("images", "thumbs"), max=20, wait=2.5, slots=4, linger=0.25)


@pytest.fixture
def bases(store):
    return store.operations.bases


@pytest.fixture
def follow(store):
    return store.follow


async def test_a_stored_pool_is_returned_unchanged(follow, bases):
    assert await follow(pools.put(bases, IMAGES)) == "created"
    assert await follow(pools.get(bases, "images")) == IMAGES.model_copy(update={"revision": 1})
    assert await follow(pools.put(bases, IMAGES.model_copy(update={"max": 5}))) == "changed"
    (found,) = await follow(pools.known(bases))
    assert (found.max, found.revision) == (5, 2)


async def test_the_same_pool_put_again_changes_nothing(follow, bases):
    await follow(pools.put(bases, IMAGES))
    assert await follow(pools.put(bases, IMAGES)) == "unchanged"
    assert (await follow(pools.get(bases, "images"))).revision == 1


async def test_a_put_with_another_revision_is_refused(follow, bases):
    await follow(pools.put(bases, IMAGES, 0))
    assert await follow(pools.put(bases, IMAGES, 0)) == "created", "a repeat gets the first reply"
    await follow(pools.put(bases, IMAGES.model_copy(update={"max": 5}), 1))
    with pytest.raises(Changed, match="revision 2, not 1"):
        await follow(pools.put(bases, IMAGES, 1))
    with pytest.raises(Changed):
        await follow(pools.remove(bases, "images", 1))
    assert await follow(pools.remove(bases, "images", 2)) == "removed"


async def test_without_a_revision_the_last_put_wins(follow, bases):
    settings = [IMAGES.model_copy(update={"max": n}) for n in range(1, 6)]
    await asyncio.gather(*(follow(pools.put(bases, one)) for one in settings))
    found = await follow(pools.get(bases, "images"))
    assert (found.max in range(1, 6), found.revision) == (True, 5)


async def test_a_removed_pool_may_be_removed_again(follow, bases):
    await follow(pools.put(bases, IMAGES))
    assert await follow(pools.remove(bases, "images")) == "removed"
    assert await follow(pools.remove(bases, "images")) == "removed"
    assert await follow(pools.known(bases)) == []
    for read in (pools.get, pools.look_at_all):
        with pytest.raises(NotFound, match="no pool images"):
            await follow(read(bases, "images"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "no/name"}, "pool 'no/name': use 1 to 128 of"),
        ({"queues": ("a", "b c")}, "queue 'b c': use 1 to 128 of"),
        ({"queues": ()}, "queues: give 1 to 32 names, each once"),
        ({"queues": ("a", "a")}, "queues: give 1 to 32 names, each once"),
        ({"queues": tuple(f"q{n}" for n in range(33))}, "queues: give 1 to 32 names, each once"),
        ({"invoker": "magic"}, "invoker 'magic': use one of process, http, lambda, none"),
        ({"min": 3, "max": 2}, "min=3 max=2: use 0 ≤ min ≤ max ≤ 1,000"),
        ({"min": -1}, "min=-1 max=20: use 0 ≤ min"),
        ({"max": 1001}, "max=1001: use 0 ≤ min"),
        ({"slots": 0}, "slots=0: a worker runs 1 to 10,000 jobs"),
        ({"wait": 0.0}, r"wait=0: use 0\.001 to 86,400 seconds"),
        ({"wait": float("nan")}, r"wait=nan: use 0\.001 to"),
        ({"linger": -1.0}, "linger=-1: use 0 to 86,400 seconds"),
        ({"arrive": 1e9}, r"arrive=1e\+09: use 0\.1 to 86,400 seconds"),
        (
            {"invoker": "http", "target": f"https://example.com/work?{HIDDEN}"},
            "this is the masked form; write out",
        ),
        (
            {"invoker": "http", "target": "https://example.com/\n"},
            "target: use at most 1,024 bytes of printable text, on one line",
        ),
        (
            {"invoker": "http", "target": "https://example.com/" + "x" * 1024},
            "target: use at most 1,024 bytes",
        ),
    ],
)
async def test_an_invalid_pool_is_refused_with_the_reason(follow, bases, wrong, words, raw, base):
    with pytest.raises(Invalid, match=words):
        await follow(pools.put(bases, IMAGES.model_copy(update=wrong)))
    assert raw.hgetall(keys.pools(base)) == {}


async def test_an_invalid_name_is_not_sent(follow, bases):
    with pytest.raises(Invalid, match="pool 'no/name'"):
        await follow(pools.remove(bases, "no/name"))


async def test_a_read_returns_the_sum_and_writes_nothing(desk, follow, bases):
    await follow(pools.put(bases, IMAGES))
    await desk.submit(*(f"0-{n}" for n in range(30)), queue="images")
    before = desk.everything()
    (found,) = await follow(pools.look_at_all(bases))
    assert desk.everything() == before
    assert found.sum.model_dump() == {
        "ready": 30, "running": 0, "rate": 0.0, "run": 1.0, "need": 12.0, "wanted": 3, "crew": 0, "summoned": 0, "owed": 3,
    }  # fmt: skip


async def test_unneeded_workers_are_not_wanted(desk, follow, bases):
    await follow(pools.put(bases, IMAGES))
    (found,) = await follow(pools.look_at_all(bases))
    assert (found.sum.wanted, found.sum.owed) == (0, 0)
    await follow(pools.put(bases, IMAGES.model_copy(update={"min": 2})))
    (found,) = await follow(pools.look_at_all(bases))
    assert (found.sum.wanted, found.sum.owed) == (2, 2)


async def test_summoned_arrived_failed_and_lost_workers_are_counted(store, follow, bases, raw):
    await follow(pools.put(bases, IMAGES.model_copy(update={"min": 4, "arrive": 5.0})))
    found = await follow(pools.ask(bases, "images", IMAGES.queues, summons="s" * 22, n=4))
    assert found.given == 4
    assert not await store.enlist(Card("w", "1", "", b"{}", "images", "s" * 22 + ".1"))
    await store.run(pools.complain(bases[0], "images", summons="s" * 22 + ".2", n=2, reason="no answer"))
    before = await follow(pools.get(bases, "images"))
    assert (before.summoned, before.arrived, before.lost, before.failures, before.failure) == (
        4,
        1,
        0,
        2,
        "no answer",
    )
    assert abs((datetime.now(UTC) - before.failed_at).total_seconds()) < 60
    for summons in raw.zrange(keys.summons(bases[0], "images"), 0, -1):
        raw.zincrby(keys.summons(bases[0], "images"), -6000, summons)
    await follow(pools.ask(bases, "images", IMAGES.queues, summons="t" * 22, n=1))
    assert (await follow(pools.get(bases, "images"))).lost == 3


async def test_a_worker_may_leave_unless_its_pool_needs_it(store, follow, bases):
    await follow(pools.put(bases, IMAGES.model_copy(update={"min": 1, "linger": 0.0})))
    for name in ("w1", "w2"):
        await store.enlist(Card(name, "1", "", b"{}", "images"))
    assert [await follow(pools.may_leave(bases, "images", name)) for name in ("w1", "w2")] == [True, False]
    assert not await store.retire(Card("w2", "1", "", b"{}", "images"))
    await follow(pools.remove(bases, "images"))
    assert await store.retire(Card("w2", "1", "", b"{}", "images"))


async def test_data_of_other_programs_is_not_a_pool(follow, bases, raw, base):
    await follow(pools.put(bases, IMAGES))
    raw.hset(
        keys.pools(base),
        mapping={"odd": "what", "worse": "1 min=2\n", "worst": "1 queues=a invoker=x min=y\n"},
    )
    assert [pool.name for pool in await follow(pools.known(bases))] == ["images"]
    with pytest.raises(NotFound):
        await follow(pools.get(bases, "odd"))


# without a server


def test_a_pool_is_stored_as_the_protocol_spells_it():
    assert (
        IMAGES.settings
        == "queues=images,thumbs invoker=none min=0 max=20 slots=4 wait=2500 linger=250 arrive=15000"
    )
    stored = pool_from(
        "images", f"7 {IMAGES.settings}\n", {"failed": "3", "failed_at": "1000", "reason": "why"}
    )
    assert stored == IMAGES.model_copy(
        update={"revision": 7, "failures": 3, "failed_at": moment(1000), "failure": "why"}
    )
    least = pool_from("p", "1 queues=a invoker=http\nhttps://example.com", {})
    assert least == Pool(name="p", queues=("a",), invoker="http", target="https://example.com", revision=1)


def test_a_sum_is_shown_in_jobs_and_seconds():
    numbers = {
        "ready": 2,
        "running": 1,
        "rate": 500,
        "run": 60_000,
        "need": 3500,
        "wanted": 1,
        "crew": 0,
        "summoned": 0,
        "owed": 1,
    }
    shown_sum = sum_from(numbers)
    assert (shown_sum.rate, shown_sum.run, shown_sum.need, shown_sum.wanted, shown_sum.owed) == (
        0.5,
        60.0,
        3.5,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        ("", ""),
        ("resize:live", "resize:live"),
        ("https://example.com/work", "https://example.com/work"),
        ("https://example.com:8443/work?code=secret", f"https://example.com:8443/work?{HIDDEN}"),
        ("https://user:secret@example.com/work#secret", f"https://{HIDDEN}@example.com/work?{HIDDEN}"),
        ("https://[secret", HIDDEN),
    ],
)
def test_parts_of_a_target_that_may_be_secret_are_masked(target, seen):
    assert shown(target) == seen
    assert Pool(name="p", queues=("q",), target=target).shown.target == seen
