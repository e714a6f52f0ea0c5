"""reschedule: another moment or priority for a job that waits."""

import pytest

from sublet.errors import Changed, Invalid, NotFound, WrongState
from sublet.protocol import keys, reads, verbs
from tests.protocol.test_stale_ids import ids

LATER = 4_102_444_800_000
HOUR = 3_600_000


def due(desk, job_id):
    """When a job is due, in ms."""
    return int(desk.raw.zscore(keys.structure(desk.base, "scheduled"), job_id))


def header(desk, job_id):
    """The rules of a job."""
    return desk.job(job_id)["spec"].partition("\n")[0].split(" ")[3:]


async def test_a_scheduled_job_moves_to_another_moment(desk):
    await desk.submit("a", rules="tries=5 delay=1000 tags=x", payload=b'{"b": 1}')
    assert await desk.operate("reschedule", "a", 0, f"at={LATER}") == f"scheduled {LATER}"
    assert (desk.state("a"), due(desk, "a"), desk.revision("a")) == ("scheduled", LATER, 1)
    assert header(desk, "a") == ["tries=5", "tags=x", f"at={LATER}"]
    assert desk.events()[-1] == ("a", "scheduled", "reschedule")
    assert (desk.backlog(), desk.job("a")["spec"].partition("\n")[2]) == ((1, 8), '{"b": 1}')
    desk.elapse(2)
    assert await desk.reap() == (0, 0, False)


async def test_a_delay_counts_from_now(desk):
    await desk.submit("a", rules=f"at={LATER}")
    before = desk.now()
    answer = await desk.operate("reschedule", "a", 0, "delay=60000")
    assert answer == f"scheduled {due(desk, 'a')}"
    assert before + 60_000 <= due(desk, "a") <= desk.now() + 60_000
    desk.elapse(61)
    assert await desk.reap() == (0, 1, False)


@pytest.mark.parametrize("rules", ["at=1", "delay=0"])
async def test_a_moment_that_has_passed_means_now(desk, rules):
    await desk.submit("b")
    await desk.submit("a", rules=f"delay={HOUR}")
    desk.raw.delete(keys.wake(desk.base, "q"))
    assert await desk.operate("reschedule", "a", 0, rules) == "queued"
    assert (desk.members("queue:q"), desk.members("scheduled"), desk.wake_ups()) == (["b", "a"], [], 1)
    assert desk.events()[-1] == ("a", "queued", "reschedule")
    assert (await desk.claim(2))[1].attempt == 1


async def test_a_queued_job_that_is_moved_to_now_keeps_its_place(desk):
    await desk.submit("a", "b")
    spec = desk.job("a")["spec"]
    assert await desk.operate("reschedule", "a", 0, "at=1") == "queued"
    assert (desk.members("queue:q"), desk.job("a")["spec"]) == (["a", "b"], spec)


async def test_a_queued_job_is_scheduled(desk):
    await desk.submit("a", "b")
    assert await desk.operate("reschedule", "a", 0, f"at={LATER}") == f"scheduled {LATER}"
    assert (desk.members("queue:q"), desk.members("scheduled")) == (["b"], ["a"])
    assert (desk.backlog(), ids(await desk.claim(5))) == ((2, 4), ["b"])


async def test_a_new_priority_keeps_the_order_of_arrival(desk):
    await desk.submit("a", "b", "c", rules="priority=1")
    await desk.submit("d", "e")
    await desk.operate("reschedule", "d", 0, "priority=1")
    await desk.operate("reschedule", "b", 0, "priority=0")
    assert desk.members("queue:q") == ["a", "c", "d", "b", "e"]
    assert (header(desk, "d"), header(desk, "b")) == (["priority=1"], [])
    await desk.operate("reschedule", "d", 1, "priority=0")
    assert desk.members("queue:q") == ["a", "c", "b", "d", "e"]
    assert desk.events()[-1] == ("d", "queued", "reschedule")


async def test_a_later_attempt_has_the_new_priority(desk):
    await desk.submit("a", "b", rules="priority=-5 tries=3")
    await desk.operate("reschedule", "a", 0, "priority=100")
    lease = await desk.take("a")
    await desk.fail(lease)
    await desk.operate("promote", "a")
    assert desk.members("queue:q") == ["a", "b"]
    assert (await desk.take("a")).attempt == 2


async def test_a_scheduled_job_gets_its_new_priority_when_it_is_due(desk):
    await desk.submit("a", rules="delay=1000")
    moment = due(desk, "a")
    assert await desk.operate("reschedule", "a", 0, "priority=7") == f"scheduled {moment}"
    assert header(desk, "a") == ["delay=1000", "priority=7"]
    desk.elapse(2)
    await desk.submit("b", rules="priority=6")
    await desk.reap()
    assert desk.members("queue:q") == ["a", "b"]


async def test_both_are_changed_at_once(desk):
    await desk.submit("a", rules="delay=1000 priority=3")
    await desk.operate("reschedule", "a", 0, f"priority=-7 at={LATER}")
    assert (due(desk, "a"), header(desk, "a")) == (LATER, ["priority=-7", f"at={LATER}"])


async def test_a_job_in_backoff_is_moved_and_the_answer_to_its_worker_stays(desk):
    lease = await desk.running("a")
    answer = await desk.fail(lease)
    await desk.operate("reschedule", "a", 1, f"at={LATER}")
    assert (due(desk, "a"), await desk.fail(lease)) == (LATER, answer)
    await desk.operate("reschedule", "a", 2, "delay=0")
    assert ((await desk.take("a")).attempt, desk.job("a")["tries_left"]) == (2, "1")


async def test_a_long_payload_stays(desk):
    await desk.submit("a", payload=b"x" * 2000)
    await desk.operate("reschedule", "a", 0, "priority=5")
    assert (await desk.take("a")).payload == b"x" * 2000
    assert desk.backlog() == (1, 2000)


async def test_a_job_of_a_schedule_keeps_its_occurrence(desk):
    await desk.submit("a", rules="at=1000 schedule=s")
    await desk.operate("reschedule", "a", 0, f"at={LATER}")
    await desk.operate("reschedule", "a", 1, "delay=0")
    assert header(desk, "a") == ["at=1000", "schedule=s"]
    assert (await desk.take("a")).occurrence_ms == 1000


async def test_a_job_keeps_its_key(desk):
    await desk.submit("a", rules="key=k")
    await desk.operate("reschedule", "a", 0, f"at={LATER} priority=9")
    assert header(desk, "a") == ["key=k", "priority=9", f"at={LATER}"]
    (again,) = await desk.submit("b", rules="key=k")
    assert again.id == "a"


async def test_an_earlier_moment_wakes_a_worker_whose_appointment_is_later(desk):
    await desk.submit("a", rules="delay=1500")
    await desk.submit("b", rules=f"delay={HOUR}")
    assert 1 < (await desk.ask(worker="one")).next_in <= 1.5
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.operate("reschedule", "b", 0, "delay=500")
    assert desk.wake_ups() == 1
    assert (await desk.ask(worker="two")).next_in <= 0.5


async def test_a_later_moment_wakes_nobody(desk):
    await desk.submit("a", "b", rules="delay=1000")
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.operate("reschedule", "a", 0, "delay=500000")
    await desk.operate("reschedule", "b", 0, "priority=5")
    assert desk.wake_ups() == 0


async def test_a_job_of_a_paused_queue_wakes_nobody(desk):
    await desk.submit("a", rules="delay=1000")
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.operate_queue("pause")
    assert await desk.operate("reschedule", "a", 0, "delay=0") == "queued"
    assert (desk.wake_ups(), await desk.claim()) == (0, [])


async def test_a_repeated_reschedule_gets_the_same_reply_and_changes_nothing(desk):
    await desk.submit("a")
    answer = await desk.operate("reschedule", "a", 0, "priority=5 delay=60000")
    before = desk.everything()
    assert await desk.operate("reschedule", "a", 0, "priority=5 delay=60000") == answer
    assert desk.everything() == before


async def test_another_reschedule_of_the_same_revision_is_refused(desk):
    await desk.submit("a")
    await desk.operate("reschedule", "a", 0, "priority=5")
    before = desk.everything()
    for rules in ("priority=6", "delay=60000", "priority=5 delay=60000"):
        with pytest.raises(Changed):
            await desk.operate("reschedule", "a", 0, rules)
    assert desk.everything() == before


async def test_a_reschedule_repeated_after_a_later_change_is_refused(desk):
    await desk.submit("a")
    await desk.operate("reschedule", "a", 0, "priority=5")
    await desk.fail(await desk.take("a"))
    before = desk.everything()
    with pytest.raises(Changed):
        await desk.operate("reschedule", "a", 0, "priority=5")
    assert desk.everything() == before


async def test_only_waiting_jobs_are_rescheduled(desk):
    await desk.complete(await desk.running("done"))
    await desk.fail(await desk.running("dead"), again=False)
    await desk.running("busy")
    await desk.submit("gone")
    await desk.operate("cancel", "gone")
    before = desk.everything()
    for job_id in ("done", "dead", "busy", "gone"):
        with pytest.raises(WrongState, match="reschedule takes one that is scheduled or queued"):
            await desk.operate("reschedule", job_id, None, "priority=5")
    assert desk.everything() == before


async def test_an_unknown_job_is_not_found(desk):
    with pytest.raises(NotFound):
        await desk.operate("reschedule", "nobody", None, "priority=5")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("", "give priority, and at or delay, or one of these"),
        ("at=1 delay=1", "give priority, and at or delay, or one of these"),
        ("priority=101", "rule priority=101: use -100 to 100"),
        ("priority=-101", "rule priority=-101: use -100 to 100"),
        ("priority=x", "rule priority=x: use -100 to 100"),
        ("priority=1 priority=2", "give it once"),
        ("delay=-1", "rule delay=-1: use ms"),
        ("at=123456789012345", "use ms, at most 14 digits"),
        ("tries=5", "use name=value, the name one of priority at delay"),
        ("priority=5  at=1", "use name=value"),
    ],
)
async def test_invalid_rules_are_refused_and_change_nothing(desk, rules, words):
    await desk.submit("a")
    before = desk.everything()
    with pytest.raises(Invalid, match=words):
        await desk.operate("reschedule", "a", 0, rules)
    assert desk.everything() == before


async def test_the_latest_moment_is_none_for_readers(desk):
    await desk.submit("a")
    await desk.operate("reschedule", "a", 0, "delay=99999999999999")
    assert (await desk.run(reads.get(desk.base, "a"))).due_at is None


async def test_a_job_that_its_structure_lacks_is_put_there_again(desk):
    await desk.submit("a", "b", rules=f"delay={HOUR}")
    await desk.submit("c")
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), "a", "b")
    desk.raw.zrem(keys.queue(desk.base, "q"), "c")
    assert await desk.operate("reschedule", "a", 0, f"at={LATER}") == f"scheduled {LATER}"
    assert await desk.operate("reschedule", "b", 0, "priority=5") == "queued"
    assert await desk.operate("reschedule", "c", 0, "priority=6") == "queued"
    assert (desk.members("scheduled"), desk.members("queue:q")) == (["a"], ["c", "b"])


@pytest.mark.parametrize("rules", ["", "at=1000 schedule=s"])
async def test_a_repair_puts_a_job_where_the_last_reschedule_did(desk, rules):
    await desk.submit("a", rules=rules)
    await desk.fail(await desk.take("a"))
    await desk.operate("reschedule", "a", 1, f"at={LATER}")
    desk.raw.zrem(keys.structure(desk.base, "scheduled"), "a")
    await desk.run(verbs.repair(desk.base, "mend", [("job", "a")]))
    assert due(desk, "a") == LATER
