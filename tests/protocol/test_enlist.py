"""enlist: register a worker, renew the registration with each call, and answer `drain` when an operator asked for it."""

import pytest

from sublet import Invalid, WorkersFull
from sublet.model import Card
from sublet.protocol import keys, verbs

DAY = 86_400


async def test_an_enlisted_worker_is_registered(desk):
    assert await desk.enlist("w", "life-1", worker_id="pod-3", about=b'{"pid": 7}') == "work"
    card = desk.registration("w")
    assert (card["life"], card["worker_id"], card["about"]) == ("life-1", "pod-3", '{"pid": 7}')
    assert abs(int(card["enlisted_at"]) - desk.now()) < 5000
    assert desk.enlisted() == ["w"]
    assert desk.score("workers", "w") == int(card["enlisted_at"])


async def test_a_heartbeat_renews_and_updates_the_registration(desk):
    await desk.enlist("w")
    await desk.enlist("later")
    desk.elapse(60)
    since = desk.registration("w")["enlisted_at"]
    assert await desk.enlist("w", about=b'{"completed": 5}') == "work"
    assert desk.registration("w") == {
        "life": "1",
        "worker_id": "",
        "about": '{"completed": 5}',
        "enlisted_at": since,
    }
    assert desk.enlisted() == ["later", "w"]
    assert desk.now() - desk.score("workers", "later") >= 60_000


async def test_a_heartbeat_completes_a_partial_registration(desk):
    """The remains of a call that was denied half-way: a repeat by the same life sets the moment."""
    await desk.enlist("w")
    desk.raw.hdel(keys.worker(desk.base, "w"), "enlisted_at", "worker_id")
    await desk.enlist("w")
    assert abs(int(desk.registration("w")["enlisted_at"]) - desk.now()) < 5000
    assert set(desk.registration("w")) == {"life", "worker_id", "about", "enlisted_at"}


async def test_every_heartbeat_of_a_draining_worker_is_answered_drain(desk):
    await desk.enlist("w")
    await desk.drain("w")
    assert [await desk.enlist("w"), await desk.enlist("w")] == ["drain", "drain"]


async def test_a_new_life_under_an_old_name_replaces_the_registration(desk):
    await desk.enlist("w", "1", worker_id="p")
    await desk.drain("w", "1")
    desk.elapse(60)
    assert await desk.enlist("w", "2") == "work"
    card = desk.registration("w")
    assert (card["life"], card["worker_id"], "drain" in card) == ("2", "", False)
    assert abs(int(card["enlisted_at"]) - desk.now()) < 5000


async def test_a_worker_silent_for_a_day_is_removed_by_any_enlist(desk):
    for name in ("one", "two"):
        await desk.enlist(name)
    desk.elapse(DAY - 60)
    await desk.enlist("w")
    assert desk.enlisted() == ["one", "two", "w"]
    desk.elapse(61)
    await desk.enlist("w")
    assert desk.enlisted() == ["w"]
    assert (desk.registration("one"), desk.registration("two")) == ({}, {})


async def test_a_worker_returning_after_a_day_does_not_remove_itself(desk):
    await desk.enlist("w")
    await desk.drain("w")
    desk.elapse(2 * DAY)
    since = desk.registration("w")["enlisted_at"]
    assert [await desk.enlist("w"), await desk.enlist("w")] == ["drain", "drain"]
    assert (desk.enlisted(), desk.registration("w")["enlisted_at"]) == (["w"], since)


async def test_a_call_removes_at_most_ten_registrations(desk):
    for n in range(25):
        await desk.enlist(f"old-{n:02}")
    desk.elapse(DAY + 1)
    left = []
    for _ in range(3):
        await desk.enlist("w")
        left.append(len(desk.enlisted()))
        assert len(list(desk.raw.scan_iter(match=f"{desk.base}:worker:*", count=1000))) == left[-1]
    assert left == [16, 6, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker": ""}, {"worker": "a b"}, {"worker": "x" * 129}, {"life": ""}, {"life": "ü"}, {"worker_id": "a/b"},
        {"worker_id": "x" * 129}, {"about": b"x" * 4097},
    ],
)  # fmt: skip
async def test_invalid_arguments_are_refused_and_leave_no_trace(desk, wrong):
    card = Card("w", "1", "p", b"{}")._replace(**wrong)
    before = desk.everything()
    with pytest.raises(Invalid, match=r"use names of 1 to 128 .* `about` may have 4096 bytes"):
        await desk.run(verbs.enlist(desk.base, card))
    assert desk.everything() == before


async def test_names_and_texts_may_have_their_documented_lengths(desk):
    long = "x" * 128
    assert await desk.enlist(long, long, worker_id=long, about=b"x" * 4096) == "work"


async def test_enlisting_touches_no_job(desk):
    await desk.running("a", worker="w")
    before = {key: value for key, value in desk.everything().items() if ":worker" not in key}
    await desk.enlist("w")
    await desk.enlist("w", "2")
    assert {key: value for key, value in desk.everything().items() if ":worker" not in key} == before


async def test_a_worker_without_a_pool_joins_no_crew(desk):
    await desk.pool()
    await desk.enlist("w")
    assert not desk.raw.exists(keys.crew(desk.base, "p"))
    assert "pool" not in desk.registration("w")


async def test_a_worker_of_a_missing_pool_works_without_a_crew(desk):
    assert await desk.join("w") == "work"
    assert not desk.raw.exists(keys.crew(desk.base, "p"))


async def test_a_crew_removes_workers_silent_for_a_day(desk):
    await desk.pool()
    await desk.join("old")
    desk.elapse(86_401)
    await desk.join("new")
    assert desk.raw.zrange(keys.crew(desk.base, "p"), 0, -1) == ["new"]


async def test_a_summons_without_a_pool_is_refused(desk):
    with pytest.raises(Invalid):
        await desk.join("w", "s" * 22 + ".1", pool="")
    assert desk.enlisted() == []


async def test_a_worker_joins_the_crew_only_if_it_serves_all_queues_of_the_pool(desk):
    await desk.pool("p", 0, "queues=a,b.c invoker=none")
    queues = {"all": '"b.c", "a", "z"', "some": '"a"', "other": '"bxc", "a"', "none": ""}
    for worker, names in queues.items():
        assert (
            await desk.run(
                verbs.enlist(desk.base, Card(worker, "1", "", b'{"queues": [%s]}' % names.encode(), "p"))
            )
            == "work"
        )
    assert await desk.join("mute") == "work"
    assert sorted(desk.raw.zrange(keys.crew(desk.base, "p"), 0, -1)) == ["all", "mute"]
    assert "pool" not in desk.registration("some")


@pytest.mark.parametrize("started", ['"88123"', '""', "88123.5", "-1", "true", "[1]", '{"ticks": 1}', ""])
async def test_a_start_that_is_not_a_whole_number_is_refused(desk, started):
    before = desk.everything()
    with pytest.raises(Invalid, match="started is a whole number"):
        await desk.enlist("w", about=f'{{"pid": 7, "started": {started}, "slots": 1}}'.encode())
    assert desk.everything() == before


@pytest.mark.parametrize(
    "about",
    ['{"started":88123}', '{"started": 88123 }', '{"started": null}', '{"a":"\\"started\\":x"}', "{}"],
)
async def test_a_start_may_be_a_whole_number_null_or_missing(desk, about):
    assert await desk.enlist("w", about=about.encode()) == "work"


# how many workers may be registered


def seen(desk, count, seconds_ago, name="other"):
    """Registrations with a heartbeat so long ago."""
    desk.raw.zadd(
        keys.workers(desk.base), {f"{name}-{i}": desk.now() - seconds_ago * 1000 for i in range(count)}
    )


@pytest.mark.real_server
async def test_of_ten_thousand_live_workers_no_further_one_is_registered(desk):
    await desk.enlist("w")
    seen(desk, 9_999, 50)
    before = desk.everything()
    with pytest.raises(WorkersFull, match=r"^10000 live workers are registered, the most: end some of them$"):
        await desk.enlist("new")
    assert desk.everything() == before
    assert await desk.enlist("w") == "work", "a known one is renewed"
    assert await desk.enlist("w", "2") == "work"


@pytest.mark.real_server
async def test_above_ten_thousand_registrations_those_without_heartbeats_are_deleted(desk):
    """For example those of workers that crash again and again, under a new name each time."""
    await desk.enlist("dead")
    desk.elapse(61)
    seen(desk, 5_000, 50)
    seen(desk, 4_999, 61, "silent")
    assert await desk.enlist("new") == "work"
    left = desk.enlisted()
    assert len(left) == 9_991
    assert "new" in left
    assert ("dead" in left) == bool(desk.registration("dead"))
    await desk.enlist("newer")
    assert len(desk.enlisted()) == 9_992, "no more than necessary"


async def test_an_owner_has_at_most_a_thousand_live_workers(desk):
    owned = keys.owner(desk.base, "token")
    assert await desk.run(verbs.enlist(desk.base, Card("w", "1", "", b"{}", owner="token"))) == "work"
    assert desk.registration("w")["owner"] == "token"
    desk.raw.zadd(owned, {f"other-{i}": desk.now() - 30_000 for i in range(999)})
    card = Card("new", "1", "", b"{}", owner="token")
    with pytest.raises(
        WorkersFull, match=r"^token has 1000 live workers, the most of one token: use another$"
    ):
        await desk.run(verbs.enlist(desk.base, card))
    assert desk.registration("new") == {}
    for again in (
        card._replace(owner="another"),
        card._replace(worker="w"),
        card._replace(worker="x", owner=""),
    ):
        assert await desk.run(verbs.enlist(desk.base, again)) == "work"
    desk.elapse(31)
    assert await desk.run(verbs.enlist(desk.base, card._replace(worker="later"))) == "work"
    assert sorted(desk.raw.zrange(owned, 0, -1)) == ["later", "w"], "those without heartbeats do not count"
    desk.elapse(61)
    assert not desk.raw.exists(owned)


async def test_a_worker_that_leaves_makes_room_for_its_owner(desk):
    owned = keys.owner(desk.base, "token")
    await desk.run(verbs.enlist(desk.base, Card("w", "1", "", b"{}", owner="token")))
    desk.raw.zadd(owned, {f"other-{i}": desk.now() for i in range(999)})
    await desk.run(verbs.reconcile(desk.base, "w", "1", []))
    assert await desk.run(verbs.enlist(desk.base, Card("new", "1", "", b"{}", owner="token"))) == "work"
