"""release: give jobs back unfinished; the try is given back too."""

import pytest

from sublet import Invalid
from sublet.model import Release
from sublet.protocol import keys, verbs


async def test_a_released_job_returns_to_its_old_position(desk):
    await desk.submit("d", "c", "b", "a")
    d, c, b = await desk.claim(3)
    assert await desk.release(b) == "queued"
    assert desk.members("queue:q") == ["b", "a"]
    assert [await desk.release(d), await desk.release(c)] == ["queued", "queued"]
    assert desk.members("queue:q") == ["d", "c", "b", "a"]
    assert desk.state("b") == "queued"


async def test_a_release_returns_the_try_and_counts_the_attempt(desk):
    await desk.submit("a", rules="tries=2")
    for attempt in range(1, 6):
        lease = await desk.take("a")
        assert (lease.attempt, desk.job("a")["tries_left"]) == (attempt, "1")
        await desk.release(lease)
        assert desk.job("a")["tries_left"] == "2"
    assert desk.counter("released") == 5


async def test_a_release_with_a_delay_is_scheduled(desk):
    answer = await desk.release(await desk.running("a"), delay=2.5)
    ended_at = int(desk.job("a")["attempt:1"].split(" ")[2])
    assert answer == f"scheduled {ended_at + 2500}"
    assert desk.state("a") == "scheduled"
    assert desk.score("scheduled", "a") == ended_at + 2500


async def test_the_attempt_record_contains_the_reason(desk):
    await desk.release(await desk.running("a"), reason="shutting down\nbye")
    words, message = desk.job("a")["attempt:1"].split("\n", 1)
    assert words.endswith(" released")
    assert message.startswith("shutting down")
    assert desk.events()[-1] == ("a", "queued", "released")


async def test_a_released_job_wakes_another_worker(desk):
    lease = await desk.running("a")
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.release(lease)
    assert desk.wake_ups() == 1


async def test_a_released_job_with_a_requested_cancel_is_cancelled(desk):
    lease = await desk.running("a")
    await desk.operate("cancel", "a")
    assert await desk.release(lease) == "cancelled"
    assert desk.state("a") == "cancelled"


# the claim's caller left

CLAIM = {"claim_id": "same.claim-0123456789ab"}
LEFT = {"code": "abandoned", "reason": "the client disconnected"}


async def test_jobs_claimed_for_a_disconnected_caller_are_returned_at_once(desk):
    lease = await desk.running("a", **CLAIM)
    assert await desk.claim(0, **CLAIM) == [lease], "the release is preceded by a repeated claim"
    assert await desk.release(lease, **LEFT) == "queued"
    assert await desk.release(lease, **LEFT) == "queued"
    assert (desk.state("a"), desk.job("a")["tries_left"]) == ("queued", "3")


async def test_jobs_claimed_for_a_caller_that_repeated_the_claim_are_not_returned(desk):
    await desk.submit("a", "b")
    leases = await desk.claim(2, **CLAIM)
    assert await desk.claim(2, **CLAIM) == leases
    assert await desk.claim(0, **CLAIM) == leases, "the first caller cannot distinguish them from its own"
    before = desk.everything()
    assert [await desk.release(lease, **LEFT) for lease in leases] == ["LEASE_LOST"] * 2
    assert desk.everything() == before
    assert desk.counter("lease_lost") == 2
    assert isinstance(await desk.heartbeat(leases[0]), int)
    assert await desk.complete(leases[0]) == "completed"
    assert await desk.release(leases[1], reason="enough") == "queued", "its holder may release it"


async def test_each_lease_of_a_call_is_checked_against_its_own_claim(desk):
    mine, other = await desk.running("a", **CLAIM), await desk.running("b")
    await desk.claim(**CLAIM)
    leases = [Release(lease, 0, **LEFT) for lease in (mine, other)]
    assert await desk.run(verbs.release(desk.base, leases)) == ["LEASE_LOST", "queued"]


async def test_jobs_of_an_expired_memo_are_not_returned(desk):
    lease = await desk.running("a", **CLAIM)
    await desk.claim(**CLAIM)
    desk.elapse(11)
    assert await desk.release(lease, **LEFT) == "LEASE_LOST"
    assert await desk.complete(lease) == "completed"


# the code


@pytest.mark.parametrize("code", ["unknown", "", "RELEASED", "unknown_task: x", "no such task"])
async def test_another_code_is_refused_and_changes_nothing(desk, code):
    await desk.submit("a", "b")
    first, second = await desk.claim(2)
    before = desk.everything()
    call = verbs.release(desk.base, [Release(first), Release(second, 0, "", code)])
    with pytest.raises(Invalid, match=f"code {code[:40]}: use released, unknown_task or abandoned"):
        await desk.run(call)
    assert desk.everything() == before


@pytest.mark.parametrize("reason", ["unknown_task: not here", "abandoned: too large"])
async def test_the_reason_has_no_effect(desk, reason):
    lease = await desk.running("a", **CLAIM)
    await desk.claim(**CLAIM)
    assert await desk.release(lease, reason=reason) == "queued"
    assert desk.job("a")["attempt:1"].split("\n")[0].endswith(" released")


# too often


async def test_after_100_releases_in_a_row_one_counts_as_a_failure(desk):
    await desk.submit("a", rules="tries=2")
    for _ in range(100):
        assert await desk.release(await desk.take("a")) == "queued"
    assert (await desk.release(await desk.take("a"))).startswith("scheduled ")
    assert desk.job("a")["tries_left"] == "1"
    desk.elapse(1)
    assert await desk.release(await desk.take("a")) == "queued"
    assert desk.job("a")["tries_left"] == "1"


async def test_the_101st_release_of_the_last_try_makes_the_job_dead(desk):
    lease = await desk.running("a", rules="tries=1")
    desk.raw.hset(keys.job(desk.base, "a"), "streak", "released 100")
    assert await desk.release(lease) == "dead"


async def test_another_outcome_resets_the_count(desk):
    lease = await desk.running("a", rules="backoff=0:1:0")
    desk.raw.hset(keys.job(desk.base, "a"), "streak", "released 100")
    await desk.fail(lease)
    for _ in range(3):
        assert await desk.release(await desk.take("a")) == "queued"
    assert desk.job("a")["streak"] == "released 3"


async def test_an_unknown_task_waits_1_s_to_60_s_and_is_dead_after_20_releases(desk):
    await desk.submit("a", rules="tries=1")
    delays = []
    for attempt in range(1, 20):
        answer = await desk.release(
            await desk.take("a"), delay=0, reason="no resize here", code="unknown_task"
        )
        delays.append(int(answer.split(" ")[1]) - int(desk.job("a")[f"attempt:{attempt}"].split(" ")[2]))
        assert desk.job("a")["tries_left"] == "1"
        desk.elapse(60)
    assert delays == [1000, 2000, 4000, 8000, 16000, 32000] + [60000] * 13
    assert await desk.release(await desk.take("a"), code="unknown_task") == "dead"
    assert desk.state("a") == "dead"
    assert desk.job("a")["attempt:20"].split("\n")[0].endswith(" unknown_task")


async def test_a_release_without_a_verdict_between_unknown_tasks_keeps_the_count(desk):
    await desk.submit("a")
    for _ in range(19):
        assert (await desk.release(await desk.take("a"), code="unknown_task")).startswith("scheduled ")
        desk.elapse(60)
        assert await desk.release(await desk.take("a"), reason="surplus") == "queued"
    assert desk.job("a")["streak"] == "unknown_task 19 released 1"
    assert await desk.release(await desk.take("a"), code="unknown_task") == "dead"


async def test_an_abandoned_claim_between_unknown_tasks_keeps_the_count(desk):
    await desk.submit("a")
    await desk.release(await desk.take("a"), code="unknown_task")
    desk.elapse(60)
    (lease,) = await desk.claim(**CLAIM)
    assert await desk.release(lease, **LEFT) == "queued"
    assert desk.job("a")["streak"] == "unknown_task 1 released 1"


ENDS = {"snooze": lambda desk, lease: desk.release(lease, 5), "failure": lambda desk, lease: desk.fail(lease)}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_a_snooze_or_a_failure_between_unknown_tasks_resets_the_count(desk, end):
    await desk.submit("a")
    await desk.release(await desk.take("a"), code="unknown_task")
    desk.elapse(60)
    await end(desk, await desk.take("a"))
    desk.elapse(60)
    await desk.release(await desk.take("a"), code="unknown_task")
    assert desk.job("a")["streak"] == "unknown_task 1"


async def test_releases_after_an_unknown_task_still_count_to_100(desk):
    lease = await desk.running("a", rules="tries=2 backoff=0:1:0")
    desk.raw.hset(keys.job(desk.base, "a"), "streak", "unknown_task 3 released 99")
    await desk.release(lease)
    assert desk.job("a")["streak"] == "unknown_task 3 released 100"
    await desk.release(await desk.take("a"))
    assert (desk.job("a")["streak"], desk.job("a")["tries_left"]) == ("", "1")


# once


@pytest.mark.parametrize("delay", [0, 5])
async def test_a_repeated_release_gets_the_same_reply_and_changes_nothing(desk, delay):
    lease = await desk.running("a")
    answer = await desk.release(lease, delay)
    before = desk.everything()
    assert await desk.release(lease, delay) == answer
    assert desk.everything() == before


async def test_a_job_twice_in_one_call_is_released_once(desk):
    lease = await desk.running("a")
    assert await desk.run(verbs.release(desk.base, [Release(lease), Release(lease, 60)])) == [
        "queued",
        "queued",
    ]
    assert desk.counter("released") == 1


async def test_a_release_repeated_after_a_later_change_is_refused(desk):
    old = await desk.running("a")
    await desk.release(old)
    await desk.take("a")
    before = desk.everything()
    assert await desk.release(old) == "LEASE_LOST"
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_a_job_with_another_outcome_cannot_be_released(desk, verb):
    lease = await desk.running("a")
    await getattr(desk, verb)(lease)
    before = desk.everything()
    assert await desk.release(lease) == "LEASE_LOST"
    assert desk.everything() == before


async def test_an_expired_lease_that_was_not_taken_back_may_still_be_released(desk):
    lease = await desk.running("a")
    desk.elapse(3000)
    assert await desk.release(lease) == "queued"
    assert desk.job("a")["tries_left"] == "3"


async def test_a_release_of_an_unknown_job_is_not_found(desk):
    lease = await desk.running("a")
    assert await desk.release(lease._replace(id="nobody")) == "NOT_FOUND"


async def test_each_lease_of_a_call_has_its_own_reply(desk):
    await desk.submit("a", "b", "c", "d", "e")
    a, b, c, d, e = await desk.claim(5)
    await desk.complete(b)
    await desk.operate("cancel", "d")
    some = [
        Release(a),
        Release(b),
        Release(c._replace(id="nobody")),
        Release(d),
        Release(e, 60),
        Release(c, 0, "", "unknown_task"),
    ]
    answers = await desk.run(verbs.release(desk.base, some))
    assert answers == [
        "queued", "LEASE_LOST", "NOT_FOUND", "cancelled",
        f"scheduled {desk.score('scheduled', 'e')}", f"scheduled {desk.score('scheduled', 'c')}",
    ]  # fmt: skip
    assert [desk.state(i) for i in "abcde"] == ["queued", "completed", "scheduled", "cancelled", "scheduled"]


@pytest.mark.parametrize("delay", ["nan", "soon", "", "-5", "1.5", "inf"])
async def test_an_invalid_delay_loses_no_job(desk, delay):
    call = verbs.release(desk.base, [Release(await desk.running("a"), 77, "why")])
    args = [delay if arg == 77_000 else arg for arg in call.commands[0]]
    desk.raw.execute_command("EVAL", call.text, *args[2:])
    assert desk.state("a") in ("queued", "scheduled")
    await desk.claim()
