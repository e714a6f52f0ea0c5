"""schedule: put a schedule; without a plan, remove it."""

import pytest

from sublet.errors import Changed, Invalid, NotFound
from sublet.protocol import keys
from sublet.schedules import firing
from tests.conftest import SCHEDULE

NEVER = 99999999999999


def due(desk, name="s"):
    return desk.raw.zscore(keys.schedules(desk.base), name)


async def remove(desk, revision=1, name="s", occurrence=""):
    return await desk.run(firing.unschedule(desk.base, name, revision, occurrence))


async def test_a_schedule_is_stored_as_put_and_is_due_at_its_occurrence(desk):
    assert (
        await desk.put(occurrence=5000, due=6000, rules="tries=2 priority=-5", overlap="queue") == "created"
    )
    kept = desk.schedule()
    made = {kept.pop(name) for name in ("made_at", "changed_at")}
    assert kept == {
        "revision": "1", "plan": "{}", "queue": "q", "task": "t", "rules": "tries=2 priority=-5", "overlap": "queue",
        "paused": "0", "occurrence": "5000", "payload": "{}", "held": "", "answer": "",
    }  # fmt: skip
    assert len(made) == 1
    assert due(desk) == 6000


async def test_a_repeated_put_gets_the_same_reply_and_changes_nothing(desk):
    assert await desk.put() == "created"
    before = desk.everything()
    assert await desk.put() == "created"
    assert desk.everything() == before
    assert await desk.put("s", 1, task="other") == await desk.put("s", 1, task="other") == "changed"


@pytest.mark.parametrize("revision", [0, 2, 99])
async def test_a_change_carries_the_revision_that_its_caller_read(desk, revision):
    await desk.put()
    before = desk.everything()
    with pytest.raises(Changed, match=f"at revision 1, not {revision}: read it again"):
        await desk.put("s", revision, task="other")
    with pytest.raises(Changed, match="read it again"):
        await remove(desk, revision)
    assert desk.everything() == before


async def test_a_change_may_carry_the_occurrence_that_its_caller_read(desk):
    await desk.put(occurrence=1000)
    (pick,) = (await desk.pick()).picks
    await desk.fire(pick, 1000, then=2000)
    for change in (
        desk.put("s", 1, was="1000", occurrence=1000, task="other"),
        remove(desk, occurrence="1000"),
    ):
        with pytest.raises(Changed, match="schedule s has fired since it was read: read it again"):
            await change
    assert desk.schedule()["occurrence"] == "2000"
    assert await desk.put("s", 1, was="2000", occurrence=2000, task="other") == "changed"


async def test_revisions_continue_after_a_removal_so_a_late_copy_is_refused(desk):
    """Also for another name: the revision of the last removal counts for all, so that nothing is stored per name."""
    await desk.put()
    await desk.put("s", 1, task="other")
    assert await remove(desk, 2) == "removed"
    assert await desk.put() == await desk.put() == "created"
    assert desk.schedule()["revision"] == "3"
    before = desk.everything()
    for late in (remove(desk, 2), desk.put("s", 1, task="other"), desk.put("s", 2, paused=True)):
        with pytest.raises(Changed, match="at revision 3, not"):
            await late
    assert desk.everything() == before
    await desk.put("another")
    for revision in range(3, 8):
        await desk.put("another", revision, task=f"t{revision}")
    assert await remove(desk, 8, "another") == "removed"
    assert await desk.put() == "created", "the reply to the repeated put"
    assert desk.everything()[desk.base]["removed"] == "8"
    assert await remove(desk, 3) == "removed"
    assert desk.everything()[desk.base]["removed"] == "8"
    assert await desk.put() == "created"
    assert desk.schedule()["revision"] == "9"


async def test_a_missing_schedule_has_revision_0(desk):
    with pytest.raises(Changed, match="at revision 0, not 3"):
        await desk.put("s", 3)
    assert desk.schedule() == {}


async def test_a_change_keeps_the_counters_and_releases_a_held_occurrence(desk):
    await desk.put(overlap="queue")
    (pick,) = (await desk.pick()).picks
    await desk.fire(pick, 1000, missed=4, then=2000)
    desk.raw.zadd(keys.schedules(desk.base), {"s": 1})
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, 2000, then=3000) == "held 0"
    assert desk.schedule()["held"] == "0-s:1000"
    await desk.put("s", 1, occurrence=4000, overlap="allow")
    kept = desk.schedule()
    assert (kept["fired"], kept["missed"], kept["held"], kept["last_id"], kept["occurrence"]) == (
        "1",
        "4",
        "",
        "0-s:1000",
        "4000",
    )


async def test_a_schedule_that_is_paused_or_ended_is_never_due(desk):
    await desk.put(paused=True)
    await desk.put("ended", occurrence=None)
    assert {due(desk), due(desk, "ended")} == {NEVER}
    assert (await desk.pick()).picks == []
    assert not (await desk.ask()).come
    await desk.put("s", 1, paused=False)
    assert [pick.name for pick in (await desk.pick()).picks] == ["s"]


async def test_a_removed_schedule_is_deleted_and_its_jobs_stay(desk):
    await desk.put()
    (pick,) = (await desk.pick()).picks
    await desk.fire(pick, 1000, then=2000)
    assert await remove(desk) == await remove(desk) == "removed"
    assert (desk.schedule(), due(desk), desk.members("queue:q")) == ({}, None, ["0-s:1000"])
    assert await desk.complete(await desk.take("0-s:1000")) == "completed"
    assert (desk.schedule(), due(desk)) == ({}, None), "the end of its job does not restore it"


async def test_a_missing_name_cannot_be_removed(desk):
    with pytest.raises(NotFound, match="no schedule s"):
        await remove(desk, 0)


async def test_a_schedule_of_the_maximum_size_is_stored(desk):
    assert (
        await desk.put("n" * 40, plan=b"p" * 4096, payload=b"x" * 262_144, occurrence=99999999999998)
        == "created"
    )
    assert desk.raw.hstrlen(keys.schedule(desk.base, "n" * 40), "payload") == 262_144


BAD = [
    {"name": ""}, {"name": "n" * 41}, {"name": "a b"}, {"name": "ä"}, {"plan": b"p" * 4097}, {"payload": b"x" * 262_145},
    {"overlap": ""}, {"overlap": "maybe"}, {"paused": 2}, {"paused": -1}, {"occurrence": -1}, {"occurrence": 1.5}, {"occurrence": "nan"},
    {"occurrence": 10**14}, {"due": ""}, {"due": "soon"}, {"queue": ""}, {"queue": "a b"}, {"queue": "q" * 129}, {"task": ""},
    {"rules": "delay=5"}, {"rules": "at=5"}, {"rules": "key=k"}, {"rules": "schedule=s"}, {"rules": "trace=0af7"},
    {"rules": "priority=101"}, {"rules": "tries=0"}, {"rules": "tries=1 tries=2"}, {"rules": "tries=1  timeout=5"},
    {"rules": "timeout=soon"}, {"rules": "backoff=1"}, {"rules": "retention=-1"}, {"rules": "x" * 200},
]  # fmt: skip


@pytest.mark.parametrize(
    "wrong", BAD, ids=lambda wrong: "-".join(f"{k}={str(v)[:12]}" for k, v in wrong.items())
)
async def test_invalid_arguments_are_refused_and_change_nothing(desk, wrong):
    before = desk.everything()
    what = {"name": "s", "occurrence": 5, "due": 5, **SCHEDULE, **wrong}
    with pytest.raises(Invalid):
        await desk.run(firing.schedule(desk.base, what.pop("name"), 0, **what))
    assert desk.everything() == before


async def test_the_last_of_10_000_schedules_is_put_and_found_like_the_first(desk):
    desk.raw.zadd(keys.schedules(desk.base), {f"n{i}": desk.now() + 10**7 for i in range(10_000)})
    assert await desk.put() == "created"
    assert [pick.name for pick in (await desk.pick()).picks] == ["s"]
    assert (await desk.ask()).come is False
