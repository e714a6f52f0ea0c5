"""complete: store the results of successful attempts."""

import pytest

from sublet.model import Completion, Release, Submission
from sublet.protocol import keys, verbs

DAY = 86_400_000


async def test_a_result_is_accepted_and_completes_the_job(desk):
    lease = await desk.running("a")
    assert await desk.complete(lease, b'{"y": 2}') == "completed"
    assert desk.state("a") == "completed"
    assert desk.job("a")["result"] == '{"y": 2}'
    assert desk.counter("completed") == 1
    assert desk.events()[-1] == ("a", "completed", "completed")


async def test_a_completed_job_keeps_only_its_documented_fields(desk):
    await desk.submit("a", payload=b"x" * 5000)
    lease = await desk.take("a", worker="host-1")
    await desk.heartbeat(lease, progress=b"1")
    header, claimed_at = desk.job("a")["spec"], desk.job("a")["claimed_at"]
    await desk.complete(lease, b"1")
    job = desk.job("a")
    at = job["finished_at"]
    assert job == {
        "state": "completed",
        "spec": header,
        "token": lease.token,
        "attempt": "1",
        "ended": "complete completed",
        "finished_at": at,
        "result": "1",
        "attempt:1": f"{claimed_at} host-1 {at} completed",
    }


async def test_the_payload_is_removed_from_the_spec_too(desk):
    await desk.submit("a", payload=b'{"large": true}', rules="priority=3")
    await desk.complete(await desk.take("a"))
    assert desk.job("a")["spec"].endswith(" priority=3")


@pytest.mark.parametrize("size", [2, 1024, 1025, 256 * 1024])
async def test_keep_keeps_a_completed_jobs_payload(desk, size):
    payload = b"x" * size
    await desk.submit("a", payload=payload, rules="keep=1")
    lease = await desk.take("a")
    await desk.note(lease, checkpoint=b"2")
    before = desk.job("a")
    await desk.complete(lease, b"1")
    job = desk.job("a")
    assert {name: job.get(name) for name in ("spec", "payload")} == {
        name: before.get(name) for name in ("spec", "payload")
    }
    assert set(job) - {"payload"} == {
        "state", "spec", "token", "attempt", "ended", "finished_at", "result", "attempt:1",
    }  # fmt: skip


async def test_a_kept_payload_counts_in_its_queues_bytes_only_until_completion(desk):
    await desk.submit("a", payload=b"x" * 5000, rules="keep=1")
    lease = await desk.take("a")
    assert desk.backlog() == (1, 5000)
    await desk.complete(lease)
    assert desk.backlog() == (0, 0)


async def test_attempts_and_operator_actions_survive_completion(desk):
    lease = await desk.running("a", rules="backoff=0:1:0")
    await desk.fail(lease, message="no luck")
    await desk.operate("cancel", "a")
    await desk.operate("retry", "a")
    await desk.watch("a")
    await desk.complete(await desk.take("a"))
    job = desk.job("a")
    assert job["attempt:1"].split("\n")[1] == "no luck"
    assert {"attempt:2", "ops", "op", "watched"} <= set(job)


@pytest.mark.parametrize(
    ("rules", "kept"), [("", DAY), ("retention=3600000", 3_600_000), ("retention=1", 60_000)]
)
async def test_a_completed_job_is_kept_for_its_retention_and_60_s_at_least(desk, rules, kept):
    await desk.complete(await desk.running("a", rules=rules))
    assert desk.score("completed", "a") - int(desk.job("a")["finished_at"]) == kept


@pytest.mark.parametrize("result", [b"", b"\x00\xff\n", b"x" * 256 * 1024])
async def test_a_result_is_opaque_bytes(desk, result):
    lease = await desk.running("a")
    await desk.complete(lease, result)
    (standing,) = await desk.watch("a")
    assert standing.result == result


# once


async def test_a_repeated_completion_gets_the_same_reply_and_changes_nothing(desk):
    lease = await desk.running("a")
    await desk.complete(lease, b"1")
    before = desk.everything()
    assert await desk.complete(lease, b"1") == "completed"
    assert await desk.complete(lease, b"2") == "completed"
    assert desk.everything() == before


async def test_one_job_twice_in_one_call_is_completed_once(desk):
    lease = await desk.running("a")
    answers = await desk.run(verbs.complete(desk.base, [Completion(lease, b"1"), Completion(lease, b"2")]))
    assert answers == ["completed", "completed"]
    assert desk.job("a")["result"] == "1"
    assert desk.counter("completed") == 1


async def test_a_result_is_refused_after_the_job_got_another_lease(desk):
    old = await desk.running("a")
    desk.elapse(30)
    new = await desk.take("a")
    before = desk.everything()
    assert await desk.complete(old, b"old") == "LEASE_LOST"
    assert desk.everything() == before
    assert await desk.complete(new, b"new") == "completed"
    assert await desk.complete(old, b"old") == "LEASE_LOST"
    assert desk.job("a")["result"] == "new"


async def test_a_result_is_refused_after_the_job_was_requeued(desk):
    lease = await desk.running("a")
    desk.elapse(30)
    await desk.reap()
    assert await desk.complete(lease) == "LEASE_LOST"
    assert desk.state("a") == "queued"


async def test_an_expired_lease_that_was_not_taken_back_still_completes(desk):
    lease = await desk.running("a")
    desk.elapse(3000)
    assert await desk.complete(lease) == "completed"


@pytest.mark.parametrize("verb", ["fail", "release"])
async def test_a_job_with_another_outcome_cannot_be_completed(desk, verb):
    lease = await desk.running("a")
    await getattr(desk, verb)(lease)
    before = desk.everything()
    assert await desk.complete(lease) == "LEASE_LOST"
    assert desk.everything() == before


async def test_a_completion_of_an_unknown_job_is_not_found(desk):
    lease = await desk.running("a")
    assert await desk.complete(lease._replace(id="nobody")) == "NOT_FOUND"
    assert desk.state("nobody") is None


async def test_a_token_is_valid_only_for_its_own_job(desk):
    lease = await desk.running("a")
    await desk.running("b")
    assert await desk.complete(lease._replace(id="b")) == "LEASE_LOST"
    assert await desk.complete(lease._replace(token="")) == "LEASE_LOST"
    assert (desk.state("a"), desk.state("b")) == ("running", "running")


async def test_each_lease_of_a_call_has_its_own_reply(desk):
    await desk.submit("a", "b", "c")
    a, b, c = await desk.claim(3)
    await desk.fail(b)
    some = [Completion(lease, b"1") for lease in (a, b, c._replace(id="nobody"), c)]
    assert await desk.run(verbs.complete(desk.base, some)) == [
        "completed",
        "LEASE_LOST",
        "NOT_FOUND",
        "completed",
    ]
    assert [desk.state(i) for i in "abc"] == ["completed", "scheduled", "completed"]
    assert desk.events()[-1] == ("a c", "completed", "completed")


async def test_a_completion_before_the_cancel_takes_effect_is_accepted(desk):
    lease = await desk.running("a")
    assert await desk.operate("cancel", "a") == "requested"
    assert await desk.complete(lease) == "completed"
    assert desk.state("a") == "completed"
    assert "cancel_requested_at" not in desk.job("a")


# maintenance by claims and completions


async def test_each_completion_deletes_at_most_two_old_jobs(desk):
    await desk.submit(*(f"j{i}" for i in range(7)))
    *old, last = await desk.claim(7)
    await desk.run(verbs.complete(desk.base, [Completion(lease, b"1") for lease in old[:5]]))
    desk.elapse(90_000)
    await desk.complete(old[5])
    assert len(desk.members("completed")) == 4
    await desk.complete(last)
    assert desk.members("completed") == ["j4", "j5", "j6"]


@pytest.mark.real_server
async def test_more_than_100_000_completed_jobs_are_not_kept(desk):
    desk.raw.zadd(keys.structure(desk.base, "completed"), {f"j{i}": 8e12 + i for i in range(100_000)})
    for i in range(3):
        await desk.complete(await desk.running(f"new{i}", rules="retention=10000000000000"))
    kept = desk.raw.zcard(keys.structure(desk.base, "completed"))
    assert 99_900 <= kept <= 100_000, "one completion deletes a hundred, so that the next ones need not"
    assert desk.raw.zscore(keys.structure(desk.base, "completed"), "new2")


# the story of many attempts


def numbers(desk):
    return sorted(int(name[8:]) for name in desk.job("a") if name.startswith("attempt:"))


async def test_the_first_and_the_last_five_attempts_are_kept(desk):
    await desk.submit("a")
    for n in range(1, 14):
        await desk.release(await desk.take("a"))
        assert numbers(desk) == sorted({*range(1, min(n, 5) + 1), *range(max(n - 4, 1), n + 1)})
    await desk.complete(await desk.take("a"))
    assert numbers(desk) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14]


async def test_a_store_settles_mixed_outcomes_in_one_call(store, raw, base):
    await store.submit([Submission(i, "q", "t", "", b"{}") for i in "abc"])
    a, b, c = (await store.claim(worker="w", queues=["q"], n=3, lease=30)).leases
    answers = await store.settle([Release(c), Completion(a, b"1"), Completion(b._replace(token="1.x"), b"1")])
    assert answers == ["queued", "completed", "LEASE_LOST"]


@pytest.mark.real_server
async def test_a_job_with_very_many_attempts_is_completed_quickly(desk):
    """A loop over all its attempts would exceed the client's deadline."""
    lease = await desk.running("a")
    stored = {"attempt": 200_000_000, "attempt:199999996": "kept", "attempt:199999995": "gone"}
    desk.raw.hset(f"{desk.base}:job:a", mapping=stored)
    assert await desk.complete(lease) == "completed"
    assert {name for name in desk.job("a") if name.startswith("attempt:")} == {
        "attempt:199999996",
        "attempt:200000000",
    }
