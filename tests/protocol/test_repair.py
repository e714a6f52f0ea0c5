"""repair: after keys were lost, all that is stored of a job agrees again."""

import random

import pytest
import redis

from sublet.connection.transport import follow
from sublet.errors import Invalid, NoNamespace, TooMany, Unfit
from sublet.operations.consistency import audit as audits
from sublet.operations.consistency import repair as repairs
from sublet.operations.consistency.audit import audit
from sublet.operations.consistency.repair import mend, repair
from sublet.protocol import keys, verbs

pytestmark = pytest.mark.timeout(120)


async def check(desk, *seen):
    return await desk.run(verbs.repair(desk.base, "look", seen))


async def put_right(desk, *seen):
    """Repair; check that `look` reported the same and wrote nothing, and that no fault remains."""
    before = desk.everything()
    checked = await check(desk, *seen)
    assert desk.everything() == before
    done = await desk.run(verbs.repair(desk.base, "mend", seen))
    assert done == checked
    after = desk.everything()
    assert await desk.run(verbs.repair(desk.base, "mend", seen)) == ["sound"] * len(seen)
    assert desk.everything() == after
    return done


async def left_alone(desk, *seen):
    """Check that a repair reports these and changes nothing; return the reports."""
    before = desk.everything()
    reports = await check(desk, *seen)
    assert await desk.run(verbs.repair(desk.base, "mend", seen)) == reports
    assert desk.everything() == before
    return reports


async def fixed(desk):
    """Repair all of the partition."""
    return await follow(desk.run, repair([desk.base]))


def kinds(faults):
    return sorted({fault.found.split(" ")[0].split(",")[0] for fault in faults})


async def one_of_each(desk):
    """A job in each state, in two queues; with keys, a schedule, a pool, a worker."""
    await desk.fail(await desk.running("dead", "key=dead"), again=False)
    await desk.complete(await desk.running("done", "key=done"))
    await desk.submit("off", rules="key=off")
    await desk.operate("cancel", "off")
    lease = await desk.running("held", "key=held", lease=1000)
    await desk.fail(await desk.running("again", "backoff=60000:1:60000"))
    await desk.submit("late", rules="delay=60000 key=late")
    await desk.submit("a", "b", rules="priority=5", payload=b"x" * 2000)
    await desk.submit("c", queue="r", rules="key=c window=60000", payload=b"x" * 50)
    await desk.enlist("w")
    await desk.put("s", occurrence=desk.now() + 10**6)
    await desk.pool("p")
    await desk.join("v")
    return lease


# one job


async def test_a_repair_of_a_healthy_namespace_writes_nothing(desk):
    await one_of_each(desk)
    for n in range(2):
        await desk.submit(*(f"{n}j{i}" for i in range(125)))
    names = list(desk.raw.scan_iter(match=f"{desk.base}*", count=1000))
    before = desk.everything()
    seen = await follow(desk.run, audit([desk.base]))
    assert (seen.whole, seen.faults) == (True, [])
    assert seen.looked > 500
    ids = [name.partition(":job:")[2] for name in names if ":job:" in name]
    for i in range(0, len(ids), 100):
        some = ids[i : i + 100]
        assert await desk.run(verbs.repair(desk.base, "mend", [("job", i) for i in some])) == ["sound"] * len(
            some
        )
    assert await fixed(desk) == (seen, [])
    assert desk.everything() == before


@pytest.mark.real_server
async def test_a_repair_leaves_every_byte_of_a_healthy_namespace_unchanged(desk, place):
    await one_of_each(desk)
    with redis.Redis.from_url(place.settings.redis_url) as client:
        names = sorted(client.scan_iter(match=f"{desk.base}*", count=1000))
        before = {name: client.dump(name) for name in names}
        assert (await fixed(desk))[1] == []
        assert before == {
            name: client.dump(name) for name in sorted(client.scan_iter(match=f"{desk.base}*", count=1000))
        }


async def test_a_queued_job_missing_in_its_queue_is_added_at_the_end(desk):
    await desk.submit("a", "b", "c")
    desk.raw.zrem(keys.queue(desk.base, "q"), "a")
    desk.raw.delete(keys.wake(desk.base, "q"))
    (output,) = await put_right(desk, ("job", "a"))
    assert output.startswith("placed queued ")
    assert desk.members("queue:q") == ["b", "c", "a"]
    assert desk.wake_ups() == 1
    assert desk.events()[-1] == ("a", "queued", "repaired")


async def test_a_lost_queue_is_restored_in_the_order_of_submission(desk):
    ids = [f"j{i}" for i in range(30)]
    await desk.submit(*ids)
    for i, job_id in enumerate(ids):
        desk.raw.hset(keys.job(desk.base, job_id), "spec", f"q t {1000 + i}\n{{}}")
    await desk.submit("urgent", rules="priority=10")
    desk.raw.delete(keys.queue(desk.base, "q"))
    await fixed(desk)
    assert desk.members("queue:q") == ["urgent", *(f"j{i}" for i in range(30))]


async def test_jobs_of_the_same_moment_are_restored_in_the_order_of_their_ids(desk):
    """ULIDs of clients increase; scans return any order."""
    ids = [f"0-{i:026d}" for i in range(150)]
    await desk.submit(*ids)
    assert len({desk.job(each)["spec"].split()[2] for each in ids}) == 1
    desk.raw.delete(keys.queue(desk.base, "q"))
    await fixed(desk)
    assert desk.members("queue:q") == ids


async def test_a_repair_ends_although_the_server_keeps_losing_keys(desk, monkeypatch):
    """Also when each scan returns as many as it may."""
    monkeypatch.setattr(audits, "FOUND", 1)
    await desk.submit("a")
    desk.raw.delete(keys.queue(desk.base, "q"))
    mends = 0

    async def run(call):
        nonlocal mends
        answer = await desk.run(call)
        if call.commands[0][4:5] == ("mend",):
            mends += 1
            assert mends < 20
            desk.raw.delete(keys.queue(desk.base, "q"))
        return answer

    seen, mended = await follow(run, repair([desk.base]))
    assert (mends, len(mended), len(seen.faults)) == (repairs.ROUNDS, repairs.ROUNDS, 1)


@pytest.mark.parametrize("rule", ["tries=x", "backoff=1000:2", "at=zz", "delay=zz", "window=zz"])
async def test_a_job_with_an_invalid_header_is_left_unchanged(desk, rule):
    await desk.submit("a", "b", rules="key=k")
    await desk.submit("c")
    spec = desk.job("a")["spec"]
    desk.raw.hset(keys.job(desk.base, "a"), "spec", spec.replace("\n", f" {rule}\n", 1))
    before = desk.everything()
    seen, mended = await fixed(desk)
    assert {(fault.name, fault.found) for fault in seen.faults} == {("a", "broken spec")}
    assert mended == []
    assert desk.everything() == before
    assert await check(desk, ("queue:q", "a"), ("dead", "a"), ("key:q|k", "a")) == ["broken spec"] * 3


async def test_a_broken_registration_is_reported_and_left_to_its_worker(desk):
    for name in ("w", "v", "u"):
        await desk.enlist(name)
    desk.raw.hset(keys.worker(desk.base, "half"), mapping={"life": "x", "worker_id": "", "about": "{}"})
    desk.raw.hset(keys.worker(desk.base, "a b"), mapping={"life": "x", "enlisted_at": desk.now()})
    desk.raw.zadd(keys.workers(desk.base), {"a b": desk.now(), "gone": desk.now(), "u": float("inf")})
    desk.raw.zrem(keys.workers(desk.base), "v")
    broken = [("worker", name) for name in ("v", "u", "half", "a b", "gone")]
    assert await left_alone(desk, ("worker", "w"), *broken) == ["sound", *["broken registration"] * 5]
    for name in ("v", "u"):
        await desk.enlist(name)
    assert await check(desk, *broken[:2]) == ["sound"] * 2


async def test_a_running_job_without_its_lease_stays_with_its_registered_worker(desk):
    lease = await desk.running("a", lease=60)
    desk.raw.delete(keys.structure(desk.base, "running"))
    (output,) = await put_right(desk, ("job", "a"))
    assert output.startswith("placed running ")
    assert 29_000 < desk.score("running", "a") - desk.now() <= 30_000
    assert await desk.heartbeat(lease) > desk.now()
    assert await desk.complete(lease) == "completed"


async def test_a_running_job_without_its_lease_is_queued_if_its_worker_is_silent(desk):
    lease = await desk.running("a", lease=60)
    desk.raw.delete(keys.structure(desk.base, "running"))
    desk.elapse(31)
    await put_right(desk, ("job", "a"))
    assert (await desk.take("a")).attempt == 2
    assert await desk.complete(lease) == "LEASE_LOST"


async def test_a_restored_lease_ends_with_the_timeout_of_the_job(desk):
    await desk.running("a", "timeout=1000")
    desk.raw.delete(keys.structure(desk.base, "running"))
    await put_right(desk, ("job", "a"))
    assert desk.score("running", "a") - int(desk.job("a")["claimed_at"]) == 6000


@pytest.mark.parametrize("state", ["scheduled", "completed", "dead", "cancelled"])
async def test_a_restored_job_keeps_its_due_or_end_time(desk, state):
    await one_of_each(desk)
    shelf = keys.structure(desk.base, state)
    before = dict(desk.raw.zrange(shelf, 0, -1, withscores=True))
    assert before
    desk.raw.delete(shelf)
    assert await put_right(desk, *(("job", i) for i in before))
    assert dict(desk.raw.zrange(shelf, 0, -1, withscores=True)) == pytest.approx(before, abs=5)


async def test_a_job_in_two_structures_stays_in_that_of_its_state(desk):
    await one_of_each(desk)
    before = desk.everything()
    for shelf in (*keys.STRUCTURES, "queue:q", "queue:r"):
        desk.raw.zadd(keys.structure(desk.base, shelf), {"a": 1, "held": 1, "done": 1, "nobody": 1}, nx=True)
    seen = await follow(desk.run, audit([desk.base]))
    assert kinds(seen.faults) == ["gone", "stray"]
    await fixed(desk)
    assert desk.everything() == before


@pytest.mark.parametrize("field", ["spec", "state"])
async def test_a_job_without_a_header_or_state_is_reported_and_left(desk, field):
    """Its structure is unknown, so its queue is left alone, too."""
    await desk.submit("a", "b")
    desk.raw.hset(keys.job(desk.base, "a"), field, "nowhere")
    seen = ("job", "a"), ("queue:q", "a"), ("dead", "a"), ("job", "b")
    assert await left_alone(desk, *seen) == [f"broken {field}"] * 3 + ["sound"]
    assert {(fault.name, fault.found) for fault in (await fixed(desk))[0].faults} == {
        ("a", f"broken {field}")
    }


@pytest.mark.parametrize("field", ["payload", "attempt", "tries_left"])
async def test_a_waiting_job_with_an_invalid_field_is_reported_and_put_back(desk, field):
    await desk.submit("a", "b", payload=b"x" * 2000)
    if field == "payload":
        desk.raw.hdel(keys.job(desk.base, "a"), field)
    else:
        desk.raw.hset(keys.job(desk.base, "a"), field, "-1")
    assert await left_alone(desk, ("job", "a"), ("job", "b")) == [f"broken {field}", "sound"]
    desk.raw.zrem(keys.queue(desk.base, "q"), "a")
    desk.raw.zadd(keys.structure(desk.base, "dead"), {"a": 1})
    seen, mended = await fixed(desk)
    assert {(fault.name, fault.found) for fault in seen.faults} == {("a", f"broken {field}")}
    assert [fault.name for fault in mended] == ["a"]
    assert desk.members("queue:q") == ["b", "a"]
    assert desk.members("dead") == []


async def test_an_entry_without_a_job_is_a_lost_job_unless_it_had_ended(desk):
    await one_of_each(desk)
    for job_id in ("a", "late", "held", "done"):
        desk.raw.delete(keys.job(desk.base, job_id))
    desk.raw.zadd(keys.queue(desk.base, "r"), {"b": 1})
    gone, stray = {"a", "late", "held"}, {"done", "b"}
    seen = (await follow(desk.run, audit([desk.base]))).faults
    assert ({f.name for f in seen if "gone" in f.found}, {f.name for f in seen if "stray" in f.found}) == (
        gone,
        stray,
    )
    seen, mended = await fixed(desk)
    assert seen.faults == []
    assert ({f.name for f in mended if f.is_lost}, {f.name for f in mended if "stray" in f.found}) == (
        gone,
        stray,
    )


@pytest.mark.parametrize("lose", ["token", "claimed_at", "rank", "worker", "tries_left"])
async def test_an_incomplete_lease_is_reported_and_ends_at_its_time(desk, lose):
    await desk.running("a", lease=1)
    desk.raw.hdel(keys.job(desk.base, "a"), lose)
    assert await left_alone(desk, ("job", "a")) == ["broken lease"]
    desk.elapse(2)
    assert (await desk.take("a")).attempt == 2
    assert desk.state("a") == "running"
    assert await check(desk, ("job", "a")) == ["sound"]


NONE = ["spoiled", "1 ", "0x1", "1e0", "1.0", "-1", "9" * 20]
"""Texts that the scripts never write as numbers. Lua's own conversion accepts most of these, ZADD does not.
"""


@pytest.mark.parametrize("rank", NONE)
async def test_a_lease_with_an_invalid_rank_can_end(desk, rank):
    """A reap cannot be undone half-way; a repair before it finds the fault."""
    for job_id in ("a", "b"):
        await desk.running(job_id, lease=1)
    desk.raw.hset(keys.job(desk.base, "a"), "rank", rank)
    assert await check(desk, ("job", "a")) != ["sound"]
    desk.elapse(2)
    await desk.reap()
    assert sorted(desk.members("queue:q")) == ["a", "b"]
    assert desk.state("a") == "queued"


@pytest.mark.parametrize("spoiled", NONE)
@pytest.mark.parametrize("field", ["attempt", "tries_left"])
async def test_an_invalid_number_of_a_job_is_reported_and_starts_again(desk, field, spoiled):
    await desk.running("held", lease=1)
    await desk.submit("a")
    for job_id in ("a", "held"):
        desk.raw.hset(keys.job(desk.base, job_id), field, spoiled)
    assert await left_alone(desk, ("job", "a"), ("job", "held")) == [f"broken {field}"] * 2
    desk.elapse(2)
    await desk.reap()
    assert sorted(lease.id for lease in await desk.claim(5)) == ["a", "held"]
    assert await check(desk, ("job", "a"), ("job", "held")) == ["sound"] * 2


async def test_deduplication_keys_are_restored_for_unfinished_jobs_only(desk):
    lease = await one_of_each(desk)
    before = desk.everything()
    for name, holder in (
        ("held", None),
        ("late", "nobody"),
        ("done", "done"),
        ("dead", "dead"),
        ("x", "nobody"),
    ):
        desk.raw.delete(keys.lock(desk.base, "q", name))
        if holder:
            desk.raw.set(keys.lock(desk.base, "q", name), holder)
    desk.raw.delete(keys.lock(desk.base, "r", "c"))
    seen, mended = await fixed(desk)
    assert seen.faults == []
    assert kinds(mended) == ["locked", "unlocked"]
    before.pop(keys.lock(desk.base, "r", "c"))  # it may have ended by itself
    assert desk.everything() == before
    assert await desk.complete(lease) == "completed"


async def test_a_key_held_by_another_unfinished_job_is_kept(desk):
    await desk.submit("a", rules="key=k")
    desk.raw.delete(keys.lock(desk.base, "q", "k"))
    await desk.submit("b", rules="key=k")
    assert await put_right(desk, ("job", "a"), ("job", "b"), ("key:q|k", "b")) == ["sound"] * 3


async def test_a_queue_missing_in_the_list_is_added(desk):
    await desk.submit("a")
    desk.raw.delete(keys.queues(desk.base))
    await desk.submit("b")
    desk.raw.delete(keys.queues(desk.base))
    assert await put_right(desk, ("job", "a"), ("job", "b")) == ["listed", "sound"]
    assert desk.raw.hgetall(keys.queues(desk.base)) == {"q": ""}


async def test_a_namespace_with_lost_metadata_is_first_in_first_out_again(desk):
    await desk.submit("a", "b")
    lease = await desk.running("held", "priority=1")
    fence = int(lease.token.partition(".")[0])
    desk.raw.delete(desk.base)
    with pytest.raises(NoNamespace):
        await check(desk, ("job", "a"))
    assert kinds((await follow(desk.run, audit([desk.base]))).faults) == ["baseless"]
    seen, mended = await fixed(desk)
    assert (seen.faults, kinds(mended)) == ([], ["baseless", "numbered"])
    assert int(desk.raw.hget(desk.base, "fence")) == fence
    await desk.submit("c")
    assert [each.id for each in await desk.claim(5)] == ["a", "b", "c"]


async def test_a_foreign_key_with_the_name_of_a_job_is_kept(desk):
    await desk.submit("a", "b")
    desk.raw.delete(keys.job(desk.base, "a"))
    desk.raw.set(keys.job(desk.base, "a"), "foreign")
    desk.raw.set(f"{desk.base}:queue:q2", "foreign")
    desk.raw.set(f"{desk.base}:else", "foreign")
    seen, _ = await fixed(desk)
    strange = {keys.job(desk.base, "a"), f"{desk.base}:queue:q2"}
    assert {(fault.key, fault.found) for fault in seen.faults} == {(name, "foreign") for name in strange}
    assert desk.raw.get(keys.job(desk.base, "a")) == "foreign"
    assert desk.members("queue:q") == ["a", "b"]
    desk.raw.delete(*strange)
    assert [fault.found for fault in (await fixed(desk))[1]] == ["gone"]
    assert desk.members("queue:q") == ["b"]


async def test_a_sound_job_is_not_reported_for_an_unrelated_key(desk):
    """Only the key of a wrong type is reported for deletion; sound jobs wait for that, unchanged."""
    await desk.submit("a", "b")
    await desk.submit("c", queue="r", rules="key=k")
    await desk.submit("d", queue="s")
    lock = keys.lock(desk.base, "r", "k")
    desk.raw.zrem(keys.queue(desk.base, "r"), "c")
    strange = [keys.queue(desk.base, "q"), lock, keys.wake(desk.base, "s")]
    for name in strange:
        desk.raw.delete(name)
        desk.raw.hset(name, "foreign", "1")
    before = desk.everything()
    seen, mended = await fixed(desk)
    assert {fault.key for fault in seen.faults if fault.found == "foreign"} == set(strange)
    assert {fault.name for fault in seen.faults if fault.found == "waits"} == {"a", "b", "c", "d"}
    assert mended == []
    assert desk.everything() == before
    for seen_in, job_id in (("job", "c"), ("key:r|k", "c"), ("job", "d")):
        with pytest.raises(Unfit):
            await desk.run(verbs.repair(desk.base, "mend", [(seen_in, job_id)]))
    assert desk.everything() == before
    desk.raw.delete(*strange)
    assert (await fixed(desk))[0].faults == []
    assert (desk.members("queue:q"), desk.members("queue:r")) == (["a", "b"], ["c"])


async def test_a_structure_of_a_wrong_type_is_reported(desk):
    await desk.submit("a")
    desk.raw.set(keys.structure(desk.base, "dead"), "foreign")
    seen, mended = await fixed(desk)
    assert ([(fault.name, fault.found) for fault in seen.faults], mended) == (
        [(f"{desk.base}:dead", "foreign")],
        [],
    )


# other than jobs


async def test_schedules_are_put_back_and_what_else_is_broken_is_reported(desk):
    await one_of_each(desk)
    await desk.put("gone", occurrence=5)
    await desk.put("idle", occurrence=None)
    await desk.pool("old")
    await desk.join("u", pool="old")
    occurrences = dict(desk.raw.zrange(keys.schedules(desk.base), 0, -1, withscores=True))
    desk.raw.delete(keys.schedule(desk.base, "gone"))
    desk.raw.zrem(keys.schedules(desk.base), "s", "idle")
    desk.raw.hdel(keys.pools(desk.base), "old")
    seen, mended = await fixed(desk)
    assert sorted((fault.seen_in, fault.name, fault.found) for fault in set(seen.faults)) == [
        ("pool", "old", "broken pool"), ("schedule", "gone", "broken schedule"),
    ]  # fmt: skip
    assert sorted((fault.seen_in, fault.name, fault.found.partition(" ")[0]) for fault in mended) == [
        ("schedule", "idle", "placed"), ("schedule", "s", "placed"),
    ]  # fmt: skip
    assert dict(desk.raw.zrange(keys.schedules(desk.base), 0, -1, withscores=True)) == occurrences


async def test_a_lost_due_time_of_a_schedule_is_restored(desk):
    """The sorted set is an older one, from when the schedule was paused."""
    never = 99999999999999
    await desk.put("s", occurrence=5000)
    await desk.put("paused", occurrence=5000, paused=True)
    await desk.put("idle", occurrence=None)
    register = keys.schedules(desk.base)
    desk.raw.zadd(register, {"s": never})
    assert await put_right(desk, *(("schedule", name) for name in ("s", "paused", "idle"))) == [
        "placed schedules 5000", "sound", "sound",
    ]  # fmt: skip
    assert dict(desk.raw.zrange(register, 0, -1, withscores=True)) == {
        "s": 5000,
        "paused": never,
        "idle": never,
    }


SCORES = ["inf", "-inf", "1e17"]
"""Invalid moments."""


@pytest.mark.parametrize("score", SCORES)
async def test_an_invalid_score_counts_as_missing(desk, score):
    """Invalid scores of jobs and schedules are repaired like missing ones."""
    await one_of_each(desk)
    names = {"scheduled": "late", "running": "held", "completed": "done", "dead": "dead", "cancelled": "off"}
    seen = [*(("job", name) for name in names.values()), ("job", "a"), ("schedule", "s")]
    names |= {"schedules": "s"}
    before = {shelf: desk.score(shelf, name) for shelf, name in names.items()}
    for shelf, name in (*names.items(), ("queue:q", "a")):
        desk.raw.zadd(keys.structure(desk.base, shelf), {name: float(score)})
    replies = await put_right(desk, *seen)
    assert [words.rpartition(" ")[0] for words in replies] == [
        f"placed {shelf}" for shelf in (*list(names)[:5], "queued", *list(names)[5:])
    ]
    after = {shelf: desk.score(shelf, name) for shelf, name in names.items()}
    assert after.pop("running") - desk.now() == pytest.approx(30_000, abs=5000)
    before.pop("running")
    assert after == pytest.approx(before, abs=1000)
    assert desk.members("queue:q")[-1] == "a"
    assert (await fixed(desk))[1] == []


async def test_the_last_valid_moment_is_kept(desk):
    await one_of_each(desk)
    desk.raw.zadd(keys.structure(desk.base, "scheduled"), {"late": 99999999999999})
    desk.raw.zadd(keys.structure(desk.base, "dead"), {"dead": 0})
    assert await put_right(desk, ("job", "late"), ("job", "dead")) == ["sound", "sound"]


async def test_data_that_cannot_be_repaired_is_reported_and_left(desk):
    """Invalid names, settings and partition counts are reported; other faults beside them are repaired."""
    await one_of_each(desk)
    await desk.operate_queue("configure", "r", None, "jobs=7")
    await desk.operate_queue("pause", "r")
    desk.raw.zadd(keys.workers(desk.base), {b"\xff": desk.now()})
    desk.raw.zadd(keys.structure(desk.base, "dead"), {b"\xfe": desk.now()})
    queues = keys.queues(desk.base)
    odd = {b"\xff": "", "a b": "", "x": "xx yy=zz \n", "y": "1 configure jobs=zz", "z": "1 configure jobs=5x"}
    desk.raw.hset(queues, mapping={**odd, "new": "3 configure later=5/s", "*": "1 configure dead=5"})
    desk.raw.hset(desk.base, "partitions", "abc")
    desk.raw.zrem(keys.queue(desk.base, "q"), "a")
    seen, mended = await fixed(desk)
    shown = {
        f"{queues} \ufffd",
        *(f"{queues} {name}" for name in ("a b", "x", "y", "z")),
        f"{desk.base} partitions",
    }
    assert {fault.key for fault in seen.faults} == shown | {
        f"{desk.base}:workers \ufffd",
        f"{desk.base}:dead \ufffd",
    }
    assert kinds(seen.faults) == ["foreign"]
    assert [(fault.name, fault.found.partition(" ")[0]) for fault in mended] == [("a", "placed")]
    desk.raw.hdel(queues, *odd)
    desk.raw.hdel(desk.base, "partitions")
    desk.raw.zrem(keys.workers(desk.base), b"\xff")
    desk.raw.zrem(keys.structure(desk.base, "dead"), b"\xfe")
    assert (await fixed(desk))[0].faults == []
    await desk.run(verbs.init(desk.base))


# the call


async def test_invalid_arguments_are_refused(desk):
    for how, seen in (
        ("try", [("job", "a")]),
        ("look", [("jobs", "a")]),
        ("mend", [("queue:", "a")]),
        ("", []),
    ):
        with pytest.raises(Invalid):
            await desk.run(verbs.repair(desk.base, how, seen))
    with pytest.raises(TooMany):
        await desk.run(verbs.repair(desk.base, "look", [("job", "a")] * 101))


async def test_a_walk_without_all_rights_reports_it(desk):
    await desk.submit(*(f"j{i}" for i in range(150)))
    for i in range(6):
        await desk.submit(*(f"{i}j{n}" for n in range(150)))
    seen = await follow(desk.run, audit([desk.base], 200))
    assert seen.whole is False
    assert 200 <= seen.looked <= 1200


async def test_a_walk_reports_its_progress_and_about_how_much_there_is(desk):
    reports = []
    await desk.submit(*(f"j{i}" for i in range(150)))
    desk.raw.zrem(keys.queue(desk.base, "q"), "j7")
    await follow(desk.run, audit([desk.base], report=lambda *numbers: reports.append(numbers)))
    done, sizes, faults = zip(*reports, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == 299
    assert set(sizes) <= {298, 299}, "two for each job in the queue"
    assert (faults[0], faults[-1]) in {(0, 1), (1, 1)}
    reports.clear()
    await follow(desk.run, audit([desk.base], 100, report=lambda *numbers: reports.append(numbers)))
    assert all(size <= max(100, done) for done, size, _ in reports)


async def test_a_job_that_changed_since_the_walk_is_not_repaired(desk):
    """The fault existed at the client's walk; the script decides by the present data."""
    await desk.submit("a", "b")
    desk.raw.zrem(keys.queue(desk.base, "q"), "a")
    faults = (await follow(desk.run, audit([desk.base]))).faults
    desk.raw.zadd(keys.queue(desk.base, "q"), {"a": 1})
    lease = await desk.take("a")
    before = desk.everything()
    assert await follow(desk.run, mend(desk.base, faults, 1)) == []
    assert desk.everything() == before
    assert await desk.complete(lease) == "completed"


# any key may be lost


def keys_of(desk):
    return sorted(
        name for name in desk.raw.scan_iter(match=f"{desk.base}*", count=1000) if ":claim:" not in name
    )


async def whole(desk):
    """Every job is reported, or only in its structure; every entry has a job; every lock is held by a job with that key.

    Return the ids of the jobs that are not reported, and all reports.
    """
    seen = await follow(desk.run, audit([desk.base]))
    assert seen.whole
    reports = {fault.key: fault.found for fault in seen.faults}
    assert all(found.startswith("broken ") for found in reports.values())
    there = {name.partition(":job:")[2] for name in keys_of(desk) if ":job:" in name}
    ids = {each for each in there if keys.job(desk.base, each) not in reports}
    assert all([desk.state(i) for i in ids])
    listed = desk.raw.hkeys(keys.queues(desk.base))
    shelves = [*keys.STRUCTURES, *(f"queue:{name}" for name in listed)]
    assert {i for shelf in shelves for i in desk.members(shelf)} - there == set()
    return ids, reports


async def test_after_the_loss_of_any_key_the_remaining_jobs_are_run(desk):
    """Each key is deleted in turn; after the repair all jobs but the lost one exist, and waiting jobs are run."""
    await one_of_each(desk)
    for name in keys_of(desk):
        desk.raw.delete(*keys_of(desk))
        await desk.run(verbs.init(desk.base))
        await one_of_each(desk)
        before = {key.partition(":job:")[2] for key in keys_of(desk) if ":job:" in key}
        desk.raw.delete(name)
        await fixed(desk)
        left, reports = await whole(desk)
        assert not any(":job:" in key for key in reports)
        assert not reports or any(word in name for word in ("worker", "pool", ":schedule:")), name
        assert before - left == ({name.partition(":job:")[2]} if ":job:" in name else set()), name
        desk.elapse(3600)
        await desk.reap()
        claimed = {lease.id for lease in await desk.claim(20, queues=("q", "r"))}
        assert claimed == left & {"a", "b", "c", "held", "again", "late"}, name


@pytest.mark.parametrize("seed", range(12))
async def test_after_lost_or_extra_fields_and_entries_the_invariants_hold(desk, seed):
    """Random fields of jobs, entries and keys are lost: after the repair the invariants hold, and no verb raises."""
    chance = random.Random(seed)
    await one_of_each(desk)
    await desk.submit(*(f"j{i}" for i in range(20)), rules="key=same tries=1" if seed % 2 else "")
    await desk.claim(5, lease=2)
    for _ in range(40):
        name = chance.choice(keys_of(desk))
        kind = desk.raw.type(name)
        if chance.random() < 0.15 and name != desk.base:
            desk.raw.delete(name)
        elif kind == "hash":
            desk.raw.hdel(name, chance.choice(sorted(desk.raw.hkeys(name))))
        elif kind == "zset" and chance.random() < 0.5:
            desk.raw.zrem(name, chance.choice(desk.raw.zrange(name, 0, -1)))
        elif kind == "zset":
            desk.raw.zadd(
                name,
                {chance.choice(["a", "held", "done", "j3", "nobody", "s", "w"]): chance.randrange(10**6)},
            )
    if not desk.raw.hget(desk.base, "layout"):
        desk.raw.delete(desk.base)
    await fixed(desk)
    ids, _ = await whole(desk)
    desk.elapse(4000)
    await desk.reap()
    while leases := await desk.claim(20, queues=("q", "r")):
        assert [await desk.complete(lease) for lease in leases] == ["completed"] * len(leases)
    assert {desk.state(i) for i in ids if desk.raw.exists(keys.job(desk.base, i))} <= {
        "completed",
        "dead",
        "cancelled",
    }


async def test_a_key_with_a_window_that_lost_its_end_is_free_when_its_job_is_over(desk):
    """A lock that is not of its job's key is free at once."""
    lease = await desk.running("a", "key=k window=60000")
    lock = keys.lock(desk.base, "q", "k")
    desk.raw.set(lock, "a")
    desk.raw.set(keys.lock(desk.base, "q", "other"), "a")
    assert await put_right(desk, ("key:q|k", "a"), ("key:q|other", "a")) == ["sound", "unlocked"]
    await desk.complete(lease)
    assert await put_right(desk, ("key:q|k", "a")) == ["sound"]
    (again,) = await desk.submit("b", rules="key=k window=60000")
    assert again.created


async def test_a_key_with_a_window_is_held_after_its_job_ended(desk):
    await desk.complete(await desk.running("a", "key=k window=60000"))
    assert await put_right(desk, ("job", "a"), ("key:q|k", "a")) == ["sound"] * 2
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) == "a"


# groups


async def test_a_job_of_a_group_returns_to_its_queue_and_its_group(desk):
    await desk.submit("a", "b", rules="group=g")
    desk.raw.delete(
        keys.grouped(desk.base, "q"), keys.waiting(desk.base, "q", "g"), keys.turns(desk.base, "q")
    )
    found = await put_right(desk, ("job", "a"), ("job", "b"))
    assert [words.split(" ")[:2] for words in found] == [["placed", "queued"]] * 2
    assert [lease.id for lease in await desk.claim(5)] == ["a", "b"]


async def test_a_job_that_left_its_group_is_put_back_and_one_that_does_not_wait_is_taken_out(desk):
    await desk.submit("a", "b", rules="group=g")
    await desk.take("a")
    desk.raw.zrem(keys.waiting(desk.base, "q", "g"), "b")
    desk.raw.zadd(keys.waiting(desk.base, "q", "g"), {"a": 1})
    assert await put_right(desk, ("job", "a"), ("job", "b")) == ["grouped", "grouped"]
    assert desk.members("waiting:q|g") == ["b"]


async def test_a_running_job_gets_its_place_back_and_a_waiting_one_loses_it(desk):
    await desk.operate_queue("configure", "q", None, "concurrency=2")
    await desk.submit("a", "b", rules="group=g")
    await desk.take("a")
    desk.raw.delete(keys.places(desk.base, "q"), keys.group_places(desk.base, "q", "g"))
    desk.raw.hset(keys.places(desk.base, "q"), "b", "g")
    assert await put_right(desk, ("job", "a"), ("job", "b")) == ["held", "held"]
    assert desk.raw.hgetall(keys.places(desk.base, "q")) == {"a": "g"}
    assert desk.raw.smembers(keys.group_places(desk.base, "q", "g")) == {"a"}


async def test_an_entry_of_a_group_without_a_job_is_removed(desk):
    await desk.submit("a", rules="group=g")
    desk.raw.delete(keys.job(desk.base, "a"))
    assert await put_right(desk, ("grouped:q", "a")) == ["gone"]
    assert desk.members("grouped:q") == []


async def test_a_stream_without_its_job_that_would_never_expire_is_deleted(desk):
    for name in ("lost", "ended", "runs"):
        await desk.emit(await desk.running(name), b"1", b"2")
    lease = await desk.running("ending")
    await desk.emit(lease, b"1")
    await desk.complete(lease)
    lost, ended, runs, ending = (keys.stream(desk.base, i) for i in ("lost", "ended", "runs", "ending"))
    desk.raw.delete(*(keys.job(desk.base, i) for i in ("lost", "ended", "ending")))
    desk.raw.pexpire(ended, 60_000)
    (fault,) = [one for one in (await follow(desk.run, audit([desk.base]))).faults if one.seen_in == "stream"]
    assert (fault.key, fault.found, fault.is_repairable, fault.is_lost) == (lost, "orphaned", True, False)
    assert await put_right(desk, ("stream", "lost")) == ["orphaned"]
    assert not desk.raw.exists(lost)
    others = [("stream", i) for i in ("ended", "runs", "ending", "never")]
    assert await left_alone(desk, *others) == ["sound"] * 4
    await desk.emit(await desk.running("again"), b"1")
    desk.raw.delete(keys.job(desk.base, "again"))
    (after, done) = await fixed(desk)
    assert ("stream", "again", "orphaned") in {(one.seen_in, one.name, one.found) for one in done}
    assert (after.faults, desk.raw.exists(keys.stream(desk.base, "again"))) == ([], 0)
    assert desk.raw.exists(ended, runs, ending) == 3
