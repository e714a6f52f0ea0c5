"""configure: the limits of a queue, which submit enforces."""

import pytest

from sublet import QueueFull
from sublet.errors import Changed, Invalid
from sublet.model import Submission, Submitted
from sublet.protocol import verbs


async def limit(desk, settings, queue="q", revision=None):
    return await desk.operate_queue("configure", queue, revision, settings)


async def test_a_full_queue_refuses_a_submit_and_stores_nothing(desk):
    await limit(desk, "jobs=2")
    await desk.submit("a", "b")
    before = desk.everything()
    assert await desk.submit("c", rules="key=k") == ["QUEUE_FULL queue q may hold 2 jobs and has 2"]
    assert desk.everything() == before


async def test_a_batch_is_accepted_up_to_the_limit(desk):
    await limit(desk, "jobs=2")
    answers = await desk.submit("a", "b", "c")
    assert [str(answer)[:10] for answer in answers] == ["Submitted(", "Submitted(", "QUEUE_FULL"]
    assert desk.members("queue:q") == ["a", "b"]


async def test_the_byte_limit_counts_payloads(desk):
    await limit(desk, "bytes=3000")
    assert (await desk.submit("a", payload=b"x" * 1000))[0].created
    assert (await desk.submit("b", payload=b"x" * 2000))[0].created
    assert await desk.submit("c", payload=b"x") == ["QUEUE_FULL queue q may hold 3000 bytes and has 3000"]
    assert (await desk.submit("d", payload=b""))[0].created
    assert desk.backlog() == (3, 3000)


async def test_an_existing_job_is_not_limited(desk):
    await limit(desk, "jobs=1")
    await desk.submit("a", rules="key=k")
    assert await desk.submit("a") == [Submitted("a", False)]
    assert await desk.submit("b", rules="key=k") == [Submitted("a", False)]


async def test_scheduled_and_running_jobs_count_and_finished_ones_do_not(desk):
    await limit(desk, "jobs=3")
    await desk.submit("late", rules="delay=9999999")
    lease = await desk.running("a")
    await desk.submit("b")
    assert desk.backlog() == (3, 6)
    assert str((await desk.submit("c"))[0]).startswith("QUEUE_FULL")
    await desk.complete(lease)
    assert desk.backlog() == (2, 4)
    assert (await desk.submit("c"))[0].created


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 5000])
@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "discard"])
async def test_every_outcome_frees_capacity_in_the_queue(desk, end, size):
    await desk.submit("a", rules="tries=1", payload=b"x" * size)
    assert desk.backlog() == (1, size)
    if end == "cancel":
        await desk.operate("cancel", "a")
    else:
        lease = await desk.take("a")
        await (desk.complete(lease) if end == "complete" else desk.fail(lease, again=end == "fail"))
    assert desk.backlog() == (0, 0)


async def test_a_revived_job_counts_again_and_is_never_refused(desk):
    await desk.fail(await desk.running("a"), again=False)
    await limit(desk, "jobs=0")
    await desk.operate("retry", "a")
    assert desk.backlog() == (1, 2)
    await desk.complete(await desk.take("a"))
    assert desk.backlog() == (0, 0)


async def test_a_requeued_job_is_never_refused(desk):
    lease = await desk.running("a")
    await desk.running("lost", lease=1)
    await limit(desk, "jobs=0")
    desk.elapse(2)
    assert await desk.release(lease) == "queued"
    assert (await desk.reap())[0] == 1
    assert desk.backlog() == (2, 4)


async def test_new_settings_replace_the_old_ones(desk):
    assert await limit(desk, "jobs=1 bytes=10") == "jobs=1 bytes=10"
    assert await limit(desk, "  bytes=20 ") == "bytes=20"
    assert (await desk.submit("a", "b"))[1].created
    assert await limit(desk, "") == ""
    assert desk.raw.hget(f"{desk.base}:queues", "q") == "3 configure"


async def test_a_repeated_configure_is_answered_and_a_different_one_at_that_revision_is_refused(desk):
    assert await limit(desk, "jobs=5", revision=0) == "jobs=5"
    before = desk.everything()
    assert await limit(desk, "jobs=5", revision=0) == "jobs=5"
    with pytest.raises(Changed, match="at revision 1, not 0"):
        await limit(desk, "jobs=6", revision=0)
    assert desk.everything() == before


async def test_a_paused_queue_stays_paused(desk):
    await desk.operate_queue("pause")
    await limit(desk, "jobs=5")
    await desk.submit("a")
    assert await desk.claim() == []
    await desk.operate_queue("resume")
    assert len(await desk.claim()) == 1


WRONG = [
    "jobs",
    "jobs=",
    "jobs=-1",
    "jobs=1.5",
    "jobs=x",
    "jobs=1 jobs=2",
    "completed=5",
    "paused=1",
    "jobs=" + "9" * 15,
    "Jobs=1",
]


@pytest.mark.parametrize("settings", WRONG)
async def test_an_invalid_setting_is_refused_with_the_reason(desk, settings):
    with pytest.raises(Invalid, match=r"setting \S+: a queue takes jobs=N bytes=N"):
        await limit(desk, settings)
    assert desk.everything() == {desk.base: {"layout": "1", "partitions": "1"}}


async def test_an_invalid_name_is_refused(desk):
    with pytest.raises(Invalid, match=r"name a queue with 1 to 128 of .* or the partition with"):
        await limit(desk, "jobs=1", queue="no good")
    with pytest.raises(Invalid, match="setting jobs=1: "):
        await limit(desk, "jobs=1", queue="*")


async def test_a_partition_may_keep_fewer_completed_jobs(desk):
    assert await limit(desk, "completed=3", queue="*") == "completed=3"
    for i in range(6):
        await desk.complete(await desk.running(f"j{i}"))
    assert desk.members("completed") == ["j3", "j4", "j5"]
    await desk.fail(await desk.running("dead"), again=False)
    await limit(desk, "completed=0", queue="*")
    assert await desk.prune() == (3, False)
    assert desk.members("dead") == ["dead"]


# for people


async def test_a_client_raises_queue_full_with_advice(store, raw):
    await store.follow(store.operations.configure("q", jobs=1))
    jobs = [Submission(f"0-{i}", "q", "t", "", b"{}") for i in range(2)]
    with pytest.raises(
        QueueFull,
        match=r"may hold 1 jobs and has 1; refused: job 0-1 of task t: add workers, or raise the limit",
    ) as full:
        await store.submit(jobs)
    assert full.value.code == "QUEUE_FULL"


async def test_a_client_changes_only_the_named_settings(store, raw):
    operations = store.operations
    await store.follow(operations.configure("q", jobs=5, bytes=100))
    assert await store.follow(operations.configure("q", bytes=None)) == "jobs=5"
    assert await store.follow(operations.pause("q")) == "paused"
    (queue,) = await store.follow(operations.queues())
    assert (queue.name, queue.limits, queue.revision, queue.paused_at is not None) == (
        "q",
        {"jobs": 5},
        3,
        True,
    )
    for wrong in ({"jobs": -1}, {"nonsense": 1}, {"completed": 1}):
        with pytest.raises(Invalid, match=r"a limit is 0 to|setting "):
            await store.follow(operations.configure("q", **wrong))


async def test_a_client_that_lost_a_race_reads_again(store, raw, monkeypatch):
    """Another client configures the queue between the read and the call."""
    run, base = store._transport.run, store.operations.bases[0]
    others = iter(["jobs=7"])

    async def raced(call):
        if call.commands[0][0] == "EVALSHA" and "bytes=9" in call.commands[0]:
            for settings in others:
                await run(verbs.configure(base, "q", 0, settings))
        return await run(call)

    monkeypatch.setattr(store._transport, "run", raced)
    assert await store.follow(store.operations.configure("q", bytes=9)) == "jobs=7 bytes=9"


async def test_the_settings_of_a_partition_are_not_listed_as_a_queue(store, raw):
    await store.follow(store.operations.configure("*", completed=5))
    assert await store.follow(store.operations.queues()) == []
