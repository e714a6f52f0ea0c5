"""reconcile: a worker is dead: end its leases at once, and delete its registration. Other workers keep their leases."""

import pytest

from sublet import Invalid
from sublet.errors import TooMany
from sublet.protocol import reads, verbs


async def test_a_dead_workers_job_returns_to_its_old_position_at_once(desk):
    await desk.submit("a", "b", "c")
    lease = await desk.take("a")
    desk.raw.delete(f"{desk.base}:wake:q")
    assert await desk.reconcile(lease) == ["queued"]
    assert (desk.members("queue:q"), desk.state("a"), desk.wake_ups()) == (["a", "b", "c"], "queued", 1)
    again = await desk.take("a", worker="another")
    assert (again.attempt, again.recovered) == (2, "crashed")
    assert desk.events()[-2] == ("a", "queued", "crashed")


async def test_the_attempt_record_contains_the_lost_lease_and_the_try_is_used(desk):
    lease = await desk.running("a")
    await desk.reconcile(lease)
    job = await desk.run(reads.get(desk.base, "a"))
    (attempt,) = job.attempts
    assert (attempt.code, attempt.message, attempt.worker) == (
        "crashed",
        "its worker was gone or replaced",
        "w",
    )
    assert (job.tries_left, job.worker, job.state) == (2, None, "queued")
    assert (desk.counter("expired"), desk.counter("failed")) == (1, 0)


async def test_a_reconciled_lease_is_one_lost_lease_in_the_row(desk):
    """The first lost lease in a row returns the job at once; after the next ones it waits."""
    rules = "tries=9 backoff=20000:1:20000"
    lease = await desk.running("a", rules, lease=10)
    assert await desk.reconcile(lease) == ["queued"]
    lease = await desk.take("a", lease=10)
    (answer,) = await desk.reconcile(lease)
    assert answer == f"scheduled {desk.score('scheduled', 'a')}"
    assert 10_000 <= desk.score("scheduled", "a") - desk.now() + 5000 <= 25_000
    desk.elapse(20)
    lease = await desk.take("a", lease=10)
    desk.elapse(11)
    await desk.reap()
    assert (desk.state("a"), desk.job("a")["streak"]) == ("scheduled", "lease_expired 3")


async def test_another_outcome_restarts_the_count(desk):
    lease = await desk.running("a", "tries=9")
    await desk.reconcile(lease)
    await desk.fail(await desk.take("a"))
    await desk.operate("promote", "a")
    assert await desk.reconcile(await desk.take("a")) == ["queued"]


async def test_a_poison_pill_dies_when_its_tries_run_out(desk):
    """A job that kills every worker becomes dead, and its key is free."""
    await desk.submit("a", rules="tries=3 key=k backoff=0:1:0")
    answers = []
    for n in range(3):
        lease = await desk.take("a", worker=f"w{n}")
        answers += await desk.reconcile(lease, worker=f"w{n}")
        await desk.reap()
    assert [answer.split()[0] for answer in answers] == ["queued", "scheduled", "dead"]
    assert (desk.state("a"), desk.backlog(), desk.counter("dead")) == ("dead", (0, 0), 1)
    assert (await desk.submit("b", rules="key=k"))[0].created


async def test_a_requested_cancel_wins(desk):
    lease = await desk.running("a")
    await desk.operate("cancel", "a")
    assert await desk.reconcile(lease) == ["cancelled"]
    assert (desk.state("a"), desk.backlog()) == ("cancelled", (0, 0))


@pytest.mark.parametrize("verb", ["complete", "fail", "release", "heartbeat", "note"])
async def test_a_token_of_a_reconciled_worker_is_refused(desk, verb):
    lease = await desk.running("a")
    await desk.reconcile(lease)
    before = desk.everything()
    assert await getattr(desk, verb)(lease) == "LEASE_LOST"
    await desk.take("a", worker="another")
    before = desk.everything()
    assert await getattr(desk, verb)(lease) == "LEASE_LOST"
    assert desk.everything() == before


async def test_leases_of_another_worker_or_attempt_are_kept(desk):
    mine, theirs = await desk.running("a", worker="gone"), await desk.running("b", worker="alive")
    before = desk.everything()
    assert await desk.reconcile(theirs, worker="gone") == ["LEASE_LOST"]
    for attempt in (0, 2):
        assert await desk.reconcile(mine._replace(attempt=attempt), worker="gone") == ["LEASE_LOST"]
    assert await desk.reconcile(mine._replace(id="nobody"), worker="gone") == ["NOT_FOUND"]
    assert desk.everything() == before
    await desk.release(mine)
    again = await desk.take("a", worker="gone")
    before = desk.everything()
    assert await desk.reconcile(mine, worker="gone") == ["LEASE_LOST"], "the attempt before the one that runs"
    assert desk.everything() == before
    assert isinstance(await desk.heartbeat(again), int)


async def test_leases_of_a_worker_restarted_under_the_name_are_kept(desk):
    await desk.enlist("w", "1")
    await desk.enlist("w", "2")
    lease = await desk.running("a")
    before = desk.everything()
    assert await desk.reconcile(lease, life="1") == ["LEASE_LOST"]
    assert await desk.reconcile(life="1") == []
    assert desk.everything() == before
    assert await desk.reconcile(lease, life="2") == ["queued"]


@pytest.mark.parametrize("end", ["complete", "fail", "release", "lost"])
async def test_a_lease_that_ended_otherwise_is_not_ended_again(desk, end):
    lease = await desk.running("a", lease=10)
    if end == "lost":
        desk.elapse(11)
        await desk.reap()
    else:
        await getattr(desk, end)(lease)
    before = desk.everything()
    assert await desk.reconcile(lease) == ["LEASE_LOST"]
    assert desk.everything() == before


async def test_an_expired_lease_that_was_not_taken_back_is_ended(desk):
    lease = await desk.running("a", lease=10)
    desk.elapse(60)
    assert await desk.reconcile(lease) == ["queued"]
    assert await desk.reap() == (0, 0, False)


async def test_a_repeated_call_gets_the_same_replies_until_the_jobs_change(desk):
    a, b = await desk.running("a"), await desk.running("b", "tries=1")
    first = await desk.reconcile(a, b)
    before = desk.everything()
    assert await desk.reconcile(a, b) == first == ["queued", "dead"]
    assert await desk.reconcile(a, a) == ["queued", "queued"]
    assert desk.everything() == before
    await desk.operate("retry", "b")
    assert await desk.reconcile(a, b) == ["queued", "LEASE_LOST"]


async def test_two_concurrent_reconciles_end_each_lease_once(desk):
    lease = await desk.running("a")
    assert await desk.reconcile(lease, lease) == ["queued", "queued"]
    assert (desk.counter("expired"), len(desk.events())) == (1, 3)


async def test_a_call_without_leases_removes_the_registration(desk):
    lease = await desk.running("a")
    await desk.enlist("w")
    await desk.enlist("other")
    await desk.reconcile(lease)
    assert set(desk.enlisted()) == {"w", "other"}, (
        "only after all its leases have ended: the caller may die before that"
    )
    assert await desk.reconcile() == []
    assert (desk.enlisted(), desk.registration("w"), desk.registration("other")["life"]) == (
        ["other"],
        {},
        "1",
    )
    before = desk.everything()
    assert await desk.reconcile() == []
    assert desk.everything() == before


async def test_an_unregistered_worker_can_be_reconciled(desk):
    """Registrations are in one partition; leases are in all."""
    lease = await desk.running("a")
    assert await desk.reconcile(lease) == ["queued"]
    assert (desk.enlisted(), desk.registration("w")) == ([], {})


async def test_up_to_100_leases_end_in_one_call(desk):
    ids = [f"j{i:03}" for i in range(100)]
    await desk.submit(*ids)
    leases = await desk.claim(100)
    assert await desk.reconcile(*leases) == ["queued"] * 100
    assert (desk.members("running"), desk.members("queue:q"), desk.counter("expired")) == ([], ids, 100)
    with pytest.raises(TooMany, match="101 items: a call takes 0 to 100"):
        await desk.reconcile(*leases, leases[0])


@pytest.mark.parametrize("wrong", [{"worker": ""}, {"worker": "a b"}, {"life": ""}, {"life": "x" * 129}])
async def test_an_invalid_name_is_refused_and_leaves_no_trace(desk, wrong):
    lease = await desk.running("a")
    before = desk.everything()
    with pytest.raises(Invalid, match="worker and life: use 1 to 128 of"):
        await desk.reconcile(lease, **wrong)
    assert desk.everything() == before


async def test_an_incomplete_pair_of_arguments_is_refused(desk):
    script = verbs.reconcile(desk.base, "w", "1", [("a", 1)])
    short = script.commands[0][:-1]
    with pytest.raises(TooMany):
        await desk.run(type(script)((short,), script.read, script.text))
