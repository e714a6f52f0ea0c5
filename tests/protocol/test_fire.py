"""fire: submit the jobs of due occurrences, and move each schedule on. Of several callers for one occurrence, one succeeds."""

import asyncio

import pytest

from sublet.errors import Invalid, TooMany
from sublet.model import Card
from sublet.protocol import keys, verbs
from sublet.schedules import firing
from sublet.schedules.definition import schedule_from, stored
from sublet.schedules.firing import FireRequest, Pick
from tests.support.verb_scenes import elsewhere

NEVER = 99999999999999
PICK = Pick("s", "1", 1000, b"{}", "allow")


def due(desk, name="s"):
    """The ms until a schedule is due again."""
    return desk.raw.zscore(keys.schedules(desk.base), name) - desk.now()


async def fired_once(desk, **what):
    """A schedule whose first occurrence, 1000, has its job; the next one, 2000, is due and picked."""
    await desk.put(**what)
    assert await desk.fire(PICK, 1000, then=2000) == "fired 1"
    (pick,) = (await desk.pick()).picks
    assert pick.occurrence == 2000
    return pick


# an occurrence's job


async def test_the_job_of_an_occurrence_has_the_fields_of_its_schedule(desk):
    await desk.put(rules="tries=2 priority=5", payload=b'{"a":1}')
    assert await desk.fire(PICK, 1000, then=2000) == "fired 1"
    spec = desk.job("0-s:1000")["spec"].split("\n")
    assert spec[0].split()[:2] == ["q", "t"]
    assert spec[0].split()[3:] == ["at=1000", "schedule=s", "tries=2", "priority=5"]
    assert (desk.state("0-s:1000"), spec[1], desk.backlog(), desk.wake_ups()) == (
        "queued",
        '{"a":1}',
        (1, 7),
        1,
    )
    assert desk.events()[-1] == ("0-s:1000", "queued", "fired")
    assert desk.counter("submitted") == 1
    lease = await desk.take("0-s:1000")
    assert (lease.task, lease.payload) == ("t", b'{"a":1}')


async def test_the_jobs_of_a_schedule_with_a_group_take_its_turns_and_places(desk):
    await desk.put(rules="group=acme cost=3")
    await desk.run(verbs.configure(desk.base, "q", 0, "group_concurrency=1"))
    assert await desk.fire(PICK, 1000, then=2000) == "fired 1"
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, 2000, then=3000) == "fired 1"
    assert desk.raw.zcard(desk.base + ":waiting:q|acme") == 2
    await desk.take("0-s:1000")
    assert await desk.claim() == []
    assert desk.state("0-s:2000") == "queued"


async def test_a_group_whose_key_has_a_wrong_type_refuses_its_schedule_alone(desk):
    await desk.put(rules="group=acme")
    desk.raw.set(desk.base + ":waiting:q|acme", "x")
    assert await desk.fire(PICK, 1000, then=2000) == "INVALID waiting:q|acme is a key of a wrong type"


async def test_a_large_payload_is_a_field_of_its_own(desk):
    await desk.put(payload=b"x" * 2000)
    await desk.fire(PICK, 1000, then=2000)
    assert desk.job("0-s:1000")["payload"] == "x" * 2000
    assert (await desk.take("0-s:1000")).payload == b"x" * 2000


async def test_a_schedule_records_its_firings_and_its_next_occurrence(desk):
    await desk.put()
    assert await desk.fire(PICK, 1000, 2000, 3000, missed=4, then=5000, due=6000, by="worker-1") == "fired 3"
    shown = desk.schedule()
    assert [shown[name] for name in ("fired", "missed", "occurrence", "last_id")] == [
        "3",
        "4",
        "5000",
        "0-s:3000",
    ]
    assert shown["fired_by"] == "worker-1"
    assert desk.raw.zscore(keys.schedules(desk.base), "s") == 6000
    assert desk.members("queue:q") == ["0-s:1000", "0-s:2000", "0-s:3000"]


async def test_a_schedule_names_the_jobs_of_its_last_occurrences(desk):
    await desk.put()
    first = range(1000, 13_000, 1000)
    assert await desk.fire(PICK, *first, then=13_000) == "fired 12"
    assert desk.schedule()["runs"].split() == [f"0-s:{at}" for at in range(12_000, 2000, -1000)]
    (pick,) = (await desk.pick()).picks
    for _ in range(2):  # the second is a repeat
        assert await desk.fire(pick, 13_000, then=14_000) == "fired 1"
    assert desk.schedule()["runs"].split() == [f"0-s:{at}" for at in range(13_000, 3000, -1000)]
    desk.raw.hset(keys.schedule(desk.base, "s"), mapping={"occurrence": 13_000, "answer": ""})
    assert await desk.fire(pick, 13_000, then=14_000) == "fired 1"  # as if the reply was lost
    assert desk.schedule()["runs"].split() == [f"0-s:{at}" for at in range(13_000, 3000, -1000)]


async def test_an_occurrence_without_a_job_is_not_among_the_last_runs(desk):
    pick = await fired_once(desk, overlap="skip")
    assert await desk.fire(pick, 2000, then=3000) == "skipped 0"
    assert desk.schedule()["runs"] == "0-s:1000"


async def test_a_fire_may_skip_all_occurrences(desk):
    await desk.put()
    assert await desk.fire(PICK, missed=7, then=9000) == "fired 0"
    assert (desk.schedule()["missed"], desk.schedule()["occurrence"], desk.members("queue:q")) == (
        "7",
        "9000",
        [],
    )


async def test_a_schedule_is_not_due_after_its_last_occurrence(desk):
    await desk.put()
    assert await desk.fire(PICK, 1000) == "fired 1"
    assert desk.schedule()["occurrence"] == ""
    assert desk.raw.zscore(keys.schedules(desk.base), "s") == NEVER
    assert await desk.fire(PICK._replace(occurrence=""), 1000) != "fired 1"
    assert (await desk.pick()).picks == []


async def test_ids_contain_the_number_of_their_partition(desk):
    there = elsewhere(desk)
    await there.run(verbs.init(there.base))
    await there.put()
    assert await there.fire(PICK, 1000) == "fired 1"
    assert there.members("queue:q") == ["1-s:1000"]


async def test_an_existing_job_with_the_occurrences_id_is_its_job(desk):
    await desk.put()
    assert await desk.fire(PICK, 1000, then=2000) == "fired 1"
    desk.raw.hset(
        keys.schedule(desk.base, "s"), mapping={"occurrence": 1000, "answer": "", "payload": "new"}
    )  # as if the reply was lost
    assert await desk.fire(PICK, 1000, then=2000) == "fired 1"
    assert (desk.job("0-s:1000")["spec"].split("\n")[1], desk.members("queue:q")) == ("{}", ["0-s:1000"])
    assert desk.counter("submitted") == 1


@pytest.mark.parametrize("rules", ["", "at=1000", "at=1000 schedule=s2", "at=2000 schedule=s"])
async def test_an_unrelated_job_with_the_occurrences_id_does_not_replace_its_job(desk, rules):
    await desk.submit("0-s:1000", queue="void", rules=rules)
    await desk.put()
    for _ in range(2):
        assert await desk.fire(PICK, 1000, then=2000) == "fired 1"
        assert desk.members("queue:q") == ["0-s.1:1000"]
        assert desk.schedule()["last_id"] == "0-s.1:1000"
        desk.raw.hset(
            keys.schedule(desk.base, "s"), mapping={"occurrence": 1000, "answer": ""}
        )  # as if the reply was lost


async def test_an_occurrence_whose_ids_are_all_taken_is_reported(desk):
    for other in ("", *(f".{i}" for i in range(1, 100))):
        desk.raw.hset(keys.job(desk.base, f"0-s{other}:1000"), "spec", "q t 1")
    await desk.put()
    assert await desk.fire(PICK, 1000, then=2000) == "INVALID other jobs have all ids of occurrence 1000"
    assert (desk.members("queue:q"), desk.schedule()["occurrence"]) == ([], "1000")
    (shown,) = await desk.run(stored(desk.base, ["s"]))
    assert schedule_from(shown).held == "other jobs have all ids of occurrence 1000"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", b"a b"),
        ("queue", b"\xff"),
        ("task", b""),
        ("rules", b"x=\n"),
        ("rules", b"priority=x"),
        ("occurrence", b"abc"),
    ],
)
async def test_a_malformed_schedule_is_not_fired_and_the_others_are(desk, field, value):
    for name in ("s", "bad"):
        await desk.put(name)
    desk.raw.hset(keys.schedule(desk.base, "bad"), field, value)
    occurrence = value.decode() if field == "occurrence" else 1000
    shots = [
        FireRequest(PICK._replace(name=name, occurrence=at), [1000], 0, 2000, 2000)
        for name, at in (("bad", occurrence), ("s", 1000))
    ]
    bad, good = await desk.run(firing.fire(desk.base, "w", shots))
    assert (bad.partition(" ")[0], good, desk.members("queue:q")) == ("INVALID", "fired 1", ["0-s:1000"])


@pytest.mark.parametrize("structure", ["queue:spoiled", "wake:spoiled"])
async def test_a_schedule_with_a_queue_key_of_a_wrong_type_is_not_fired_and_the_others_are(desk, structure):
    await desk.put("bad", queue="spoiled")
    await desk.put()
    desk.raw.set(f"{desk.base}:{structure}", "x")
    shots = [FireRequest(PICK._replace(name=name), [1000], 0, 2000, 2000) for name in ("bad", "s")]
    bad, good = await desk.run(firing.fire(desk.base, "w", shots))
    assert (bad, good) == (f"INVALID {structure} is a key of a wrong type", "fired 1")


# once


async def test_of_many_callers_one_fires_an_occurrence(desk):
    await desk.put()
    shots = [firing.fire(desk.base, f"w{i}", [FireRequest(PICK, [1000], 0, 2000, 2000)]) for i in range(20)]
    answers = [answer for (answer,) in await asyncio.gather(*map(desk.run, shots))]
    assert sorted(answers) == ["CHANGED"] * 19 + ["fired 1"]
    assert desk.members("queue:q") == ["0-s:1000"]


async def test_of_many_concurrent_callers_one_fires(desk, store):
    """As claims and ticks do, by the plan of the schedule."""
    plan = b'{"when":{"every":3600}}'
    await desk.put(plan=plan, occurrence=3_600_000)
    fired = await asyncio.gather(*(store.follow(firing.fire_due([desk.base], f"w{i}")) for i in range(20)))
    assert sum(one.jobs for one in fired) == 1
    assert len(desk.members("queue:q")) == 1
    assert 0 < due(desk) <= 3_600_000


async def test_a_fire_repeated_after_a_lost_reply_gets_the_same_reply_and_changes_nothing(desk):
    await desk.put()
    assert await desk.fire(PICK, 1000, missed=2, then=2000) == "fired 1"
    before = desk.everything()
    assert await desk.fire(PICK, 1000, missed=2, then=2000) == "fired 1"
    assert desk.everything() == before
    assert await desk.fire(PICK, 1000, missed=2, then=2000, by="another") == "CHANGED"


async def test_a_caller_that_dies_after_a_pick_delays_an_occurrence_by_two_seconds(desk):
    await desk.put()
    assert len((await desk.pick()).picks) == 1
    desk.elapse(2)
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, pick.occurrence, then=pick.occurrence + 10) == "fired 1"


async def test_a_schedule_named_twice_is_fired_once(desk):
    await desk.put()
    shots = [FireRequest(PICK, [1000], 0, 2000, 2000), FireRequest(PICK, [1000], 5, 9000, 9000)]
    assert await desk.run(firing.fire(desk.base, "w", shots)) == ["fired 1", "CHANGED"]
    assert (desk.schedule()["occurrence"], desk.schedule()["fired"]) == ("2000", "1")


@pytest.mark.parametrize("change", ["paused", "changed", "removed"])
async def test_a_schedule_changed_after_its_pick_is_not_fired(desk, change):
    await desk.put()
    (pick,) = (await desk.pick()).picks
    if change == "removed":
        await desk.run(firing.unschedule(desk.base, "s", 1))
    else:
        await desk.put("s", 1, paused=change == "paused", occurrence=1000)
    before = desk.everything()
    assert await desk.fire(pick, 1000, then=2000) == ("NOT_FOUND" if change == "removed" else "CHANGED")
    assert desk.everything() == before


async def test_a_paused_schedule_is_not_fired_with_its_revision(desk):
    await desk.put(paused=True)
    assert await desk.fire(PICK, 1000, then=2000) == "CHANGED"
    assert desk.raw.zscore(keys.schedules(desk.base), "s") == NEVER


# overlap


async def test_overlapping_jobs_may_run_concurrently(desk):
    pick = await fired_once(desk)
    assert await desk.fire(pick, 2000, then=3000) == "fired 1"
    assert desk.members("queue:q") == ["0-s:1000", "0-s:2000"]


@pytest.mark.parametrize("state", ["queued", "running", "scheduled"])
async def test_an_occurrence_is_skipped_while_the_previous_job_is_unfinished(desk, state):
    pick = await fired_once(desk, overlap="skip", rules="backoff=60000:1:60000")
    lease = await desk.take("0-s:1000") if state != "queued" else None
    if state == "scheduled":
        await desk.fail(lease)
    assert desk.state("0-s:1000") == state
    assert await desk.fire(pick, 2000, then=3000) == "skipped 0"
    assert (desk.schedule()["skipped"], desk.schedule()["occurrence"], desk.schedule()["fired"]) == (
        "1",
        "3000",
        "1",
    )
    assert desk.job("0-s:2000") == {}


async def test_an_occurrence_is_fired_after_the_previous_job_ended(desk):
    pick = await fired_once(desk, overlap="skip")
    await desk.complete(await desk.take("0-s:1000"))
    assert await desk.fire(pick, 2000, then=3000) == "fired 1"


async def test_of_many_occurrences_at_once_the_first_is_fired_and_the_others_are_skipped(desk):
    await desk.put(overlap="skip")
    assert await desk.fire(PICK, 1000, 2000, 3000, then=4000) == "skipped 1"
    assert (desk.members("queue:q"), desk.schedule()["skipped"], desk.schedule()["fired"]) == (
        ["0-s:1000"],
        "2",
        "1",
    )


async def test_of_many_occurrences_at_once_the_first_is_fired_and_the_second_waits(desk):
    await desk.put(overlap="queue")
    assert await desk.fire(PICK, 1000, 2000, 3000, then=4000) == "held 1"
    shown = desk.schedule()
    assert (shown["occurrence"], shown["held"], shown["fired"], desk.members("queue:q")) == (
        "2000",
        "0-s:1000",
        "1",
        ["0-s:1000"],
    )


async def lost(desk, lease):
    desk.elapse(40)
    await desk.reap()


ENDS = {
    "completed": lambda desk, lease: desk.complete(lease),
    "buried": lambda desk, lease: desk.fail(lease, again=False),
    "failed for the last time": lambda desk, lease: desk.fail(lease),
    "given up": lambda desk, lease: desk.release(lease, code="unknown_task"),
    "lost": lost,
    "its worker gone": lambda desk, lease: desk.reconcile(lease),
}


@pytest.mark.parametrize("how", [*ENDS, "cancelled", "called off while it runs"])
async def test_a_held_occurrence_is_due_after_any_end_of_the_previous_job(desk, how):
    pick = await fired_once(desk, overlap="queue", rules="tries=1")
    assert await desk.fire(pick, 2000, then=3000) == "held 0"
    assert 50_000 < due(desk) <= 60_000
    assert not (await desk.ask(0)).come
    if how == "cancelled":
        assert await desk.operate("cancel", "0-s:1000") == "cancelled"
    else:
        lease = await desk.take("0-s:1000")
        if how == "given up":
            desk.raw.hset(keys.job(desk.base, lease.id), "streak", "unknown_task 19")
        if how == "called off while it runs":
            await desk.operate("cancel", lease.id)
            await desk.release(lease)
        else:
            await ENDS[how](desk, lease)
    assert desk.state("0-s:1000") in ("completed", "dead", "cancelled")
    assert (await desk.ask(0)).come, "the next claim reports it"
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, 2000, then=desk.now() + 60_000) == "fired 1"
    assert desk.schedule()["held"] == ""


async def test_a_failed_attempt_does_not_release_a_held_occurrence(desk):
    pick = await fired_once(desk, overlap="queue")
    await desk.fire(pick, 2000, then=3000)
    await desk.fail(await desk.take("0-s:1000"))
    assert not (await desk.ask(0)).come


async def test_the_end_of_an_unrelated_job_releases_no_occurrence(desk):
    pick = await fired_once(desk, overlap="queue")
    await desk.fire(pick, 2000, then=3000)
    await desk.submit("stranger", rules="schedule=s priority=50")
    await desk.complete(await desk.take("stranger"))
    assert not (await desk.ask(0)).come


async def test_an_occurrence_that_waits_for_a_missing_job_is_checked_again_after_a_minute(desk):
    pick = await fired_once(desk, overlap="queue")
    await desk.fire(pick, 2000, then=3000)
    desk.raw.delete(keys.job(desk.base, "0-s:1000"))
    assert (await desk.pick()).picks == []
    desk.elapse(60)
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, pick.occurrence, then=pick.occurrence + 1) == "fired 1"


# full queues


async def test_an_occurrence_for_a_full_queue_is_tried_again_after_five_seconds(desk):
    await desk.operate_queue("configure", "q", 0, "jobs=1")
    await desk.put()
    assert await desk.fire(PICK, 1000, 2000, then=3000) == (
        "QUEUE_FULL queue q may hold 1 jobs and has 1; fired 1"
    )
    shown = desk.schedule()
    assert (shown["occurrence"], shown["fired"], desk.counter("queue_full")) == ("2000", "1", 1)
    assert shown["held"].startswith("QUEUE_FULL")
    assert 4000 < due(desk) <= 5000
    await desk.complete(await desk.take("0-s:1000"))
    desk.elapse(5)
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, pick.occurrence, then=pick.occurrence + 60_000) == "fired 1"
    assert desk.schedule()["held"] == ""


async def test_a_call_stores_1_mib_and_leaves_the_rest_to_the_next_call(desk):
    for i in range(6):
        await desk.put(f"n{i}", payload=b"x" * 262_144, occurrence=1000)
    shots = [FireRequest(pick, [1000], 0, 2**42, 2**42) for pick in (await desk.pick()).picks]
    assert await desk.run(firing.fire(desk.base, "w", shots)) == ["fired 1"] * 4 + ["later 0"] * 2
    again = await desk.pick()
    assert [pick.name for pick in again.picks] == ["n4", "n5"]
    assert [await desk.fire(pick, 1000) for pick in again.picks] == ["fired 1"] * 2
    assert len(desk.members("queue:q")) == 6


async def test_excess_occurrences_of_one_schedule_are_left_to_the_next_call(desk):
    await desk.put(payload=b"x" * 262_144)
    assert await desk.fire(PICK, *range(1000, 7000, 1000), then=2**42) == "later 4"
    assert (len(desk.members("queue:q")), desk.schedule()["occurrence"]) == (4, "5000")
    (pick,) = (await desk.pick()).picks
    assert await desk.fire(pick, 5000, 6000, then=2**42) == "fired 2"


# invalid arguments

FAR = 2**42  # ms, in the year 2109


@pytest.mark.parametrize(
    ("occurrences", "missed", "then", "due"),
    [
        ([FAR], 0, FAR + 1, FAR + 1),
        ([999], 0, 2000, 2000),
        ([1000, 1000], 0, 2000, 2000),
        ([2000, 1000], 0, 3000, 3000),
        ([1000], 0, 1000, 1000),
        ([1000, 2000], 0, 1500, 1500),
        ([], 1, 1000, 1000),
        ([1000], 0, 2000, ""),
        ([1000], 0, 2000, "soon"),
        ([1000], 0, "soon", 2000),
        ([1000], 0, 1.5e4, 2000),
        ([1000], -1, 2000, 2000),
        ([1000], "many", 2000, 2000),
        ([1000], 10**14, 2000, 2000),
        (["x"], 0, 2000, 2000),
        ([1000.5], 0, 2000, 2000),
        (["nan"], 0, 2000, 2000),
        (["1" * 500], 0, 2000, 2000),
    ],
)
async def test_invalid_moments_fire_nothing(desk, occurrences, missed, then, due):
    await desk.put()
    before = desk.everything()
    (answer,) = await desk.run(
        firing.fire(desk.base, "w", [FireRequest(PICK, occurrences, missed, then, due)])
    )
    assert answer.startswith("INVALID ")
    assert len(answer) < 120
    assert desk.everything() == before


async def test_a_missing_schedule_is_not_found_and_the_others_are_fired(desk):
    await desk.put()
    shots = [
        FireRequest(PICK._replace(name=name), [1000], 0, 2000, 2000) for name in ("ghost", "s", "", "a b")
    ]
    assert await desk.run(firing.fire(desk.base, "w", shots)) == [
        "NOT_FOUND",
        "fired 1",
        "NOT_FOUND",
        "NOT_FOUND",
    ]


async def test_a_call_takes_50_schedules_and_100_occurrences(desk):
    await desk.put()
    shot = FireRequest(PICK, [], 0, 2000, 2000)
    with pytest.raises(TooMany, match="51 items: a call takes 0 to 50"):
        await desk.run(firing.fire(desk.base, "w", [shot] * 51))
    with pytest.raises(Invalid, match="101 occurrences: use at most 100 in a call"):
        await desk.fire(PICK, *range(1000, 1101), then=2000)
    assert await desk.fire(PICK, *range(1000, 1100), then=2000) == "fired 100"


@pytest.mark.parametrize("by", ["", "a b", "w" * 129])
async def test_a_fire_without_a_callers_name_is_refused(desk, by):
    await desk.put()
    with pytest.raises(Invalid, match="by: use 1 to 128"):
        await desk.fire(PICK, 1000, then=2000, by=by)
    assert desk.members("queue:q") == []


async def test_an_incomplete_schedule_is_not_found(desk):
    await desk.put()
    desk.raw.hdel(keys.schedule(desk.base, "s"), "queue")
    assert await desk.fire(PICK, 1000, then=2000) == "NOT_FOUND"


async def test_a_claim_fires_a_due_occurrence_and_returns_its_job(desk, store):
    """A claim that finds a due occurrence fires it, and returns its job."""
    await desk.put(plan=b'{"when":{"every":3600}}', occurrence=3_600_000)
    await desk.run(verbs.enlist(desk.base, Card("w", "1", "", b"{}")))
    claimed = await store.claim(worker="w", queues=["q"], n=1, lease=30)
    assert [lease.id.partition(":")[0] for lease in claimed.leases] == ["0-s"]
    assert claimed.come is False
