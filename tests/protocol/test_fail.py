"""fail: record failed attempts; try again after the backoff, or make the job dead."""

import pytest

from sublet import Invalid
from sublet.model import Failure
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call

FORTNIGHT = 14 * 86_400_000


def ended_at(desk, job_id, attempt=1):
    return int(desk.job(job_id)[f"attempt:{attempt}"].split(" ")[2])


async def delay_after(desk, job_id, attempt):
    """Claim and fail a job. Return the ms until the next try."""
    word, moment = (await desk.fail(await desk.take(job_id))).split(" ")
    assert word == "scheduled"
    assert int(moment) == desk.score("scheduled", job_id)
    return int(moment) - ended_at(desk, job_id, attempt)


async def test_a_failed_attempt_is_tried_again_after_a_backoff(desk):
    lease = await desk.running("a")
    answer = await desk.fail(lease, "ValueError", "no such file", "Traceback …\n  line 2")
    assert desk.state("a") == "scheduled"
    assert answer == f"scheduled {desk.score('scheduled', 'a')}"
    assert desk.counter("failed") == 1
    assert desk.events()[-1] == ("a", "scheduled", "ValueError")
    desk.elapse(1)
    assert (await desk.take("a")).attempt == 2


async def test_the_attempt_record_contains_the_failure(desk):
    lease = await desk.running("a", worker="host-1")
    claimed_at = desk.job("a")["claimed_at"]
    await desk.fail(lease, "ValueError", "no such file", "Traceback …\n  line 2")
    words, message, detail = desk.job("a")["attempt:1"].split("\n", 2)
    assert words == f"{claimed_at} host-1 {ended_at(desk, 'a')} ValueError"
    assert (message, detail) == ("no such file", "Traceback …\n  line 2")


async def test_a_failed_attempt_keeps_only_the_token_of_its_lease(desk):
    lease = await desk.running("a")
    await desk.heartbeat(lease, progress=b"1")
    answer = await desk.fail(lease)
    job = desk.job("a")
    assert set(job) == {
        "state",
        "spec",
        "token",
        "attempt",
        "tries_left",
        "ended",
        "streak",
        "error",
        "attempt:1",
    }
    assert job["ended"] == f"fail {answer}"


async def test_a_retry_wakes_a_worker_only_if_it_is_due_first(desk):
    await desk.submit("a", "b", rules="backoff=60000:1:60000")
    await desk.submit("c")
    leases = await desk.claim(3)
    woken = []
    for lease in leases:
        desk.raw.delete(keys.wake(desk.base, "q"))
        await desk.fail(lease)
        woken.append(desk.wake_ups())
        if lease.id == "a":
            desk.raw.zadd(keys.structure(desk.base, "scheduled"), {"a": desk.now() + 20_000})
    assert woken == [1, 0, 1]


# backoff


async def test_the_backoff_doubles_from_1_s_and_half_of_it_is_jitter(desk):
    await desk.submit("a", rules="tries=12")
    for n in range(1, 12):
        full = min(1000 * 2 ** (n - 1), 300_000)
        assert full / 2 <= await delay_after(desk, "a", n) <= full
        desk.elapse(300)


async def test_a_job_may_set_its_backoff(desk):
    await desk.submit("a", rules="tries=5 backoff=2000:2.5:9000")
    for n, full in ((1, 2000), (2, 5000), (3, 9000), (4, 9000)):
        assert full / 2 <= await delay_after(desk, "a", n) <= full
        desk.elapse(9)


async def test_jobs_that_failed_together_are_retried_at_different_moments(desk):
    await desk.submit(*(f"j{i:03}" for i in range(50)))
    leases = await desk.claim(50)
    answers = await desk.run(verbs.fail(desk.base, [Failure(lease, "Boom") for lease in leases]))
    moments = [int(answer.split(" ")[1]) for answer in answers]
    assert len(set(moments)) > 35
    assert max(moments) - min(moments) > 350


async def test_a_zero_backoff_stays_zero_at_any_try(desk):
    await desk.submit("a", rules="tries=3000 backoff=0:2:0")
    for left in ("2000", "1000"):
        desk.raw.hset(keys.job(desk.base, "a"), "tries_left", left)
        lease = await desk.take("a")
        assert (await desk.fail(lease)).startswith("scheduled ")
        assert desk.state("a") == "scheduled"


async def test_a_backoff_never_exceeds_its_cap_at_any_try(desk):
    await desk.submit("a", rules="tries=30000 backoff=1000:1000:5000")
    desk.raw.hset(keys.job(desk.base, "a"), "tries_left", "1000")
    assert 2500 <= await delay_after(desk, "a", 1) <= 5000


# the end


async def test_when_the_tries_are_spent_the_job_is_dead(desk):
    await desk.submit("a", rules="tries=2 backoff=0:1:0", payload=b"precious")
    await desk.fail(await desk.take("a"))
    assert await desk.fail(await desk.take("a"), "ValueError") == "dead"
    assert desk.state("a") == "dead"
    job = desk.job("a")
    assert job["spec"].endswith("\nprecious")
    assert desk.score("dead", "a") - int(job["finished_at"]) == FORTNIGHT
    assert (desk.counter("failed"), desk.counter("dead")) == (2, 1)
    assert desk.events()[-1] == ("a", "dead", "ValueError")
    assert await desk.claim() == []


async def test_a_job_with_one_try_is_dead_after_its_first_failure(desk):
    assert await desk.fail(await desk.running("a", rules="tries=1")) == "dead"


async def test_a_dead_job_is_kept_for_its_retention_if_that_is_longer(desk):
    await desk.fail(await desk.running("a", rules=f"retention={2 * FORTNIGHT}"), again=False)
    assert desk.score("dead", "a") - int(desk.job("a")["finished_at"]) == 2 * FORTNIGHT


async def test_a_final_failure_makes_the_job_dead(desk):
    assert await desk.fail(await desk.running("a"), "Discard", again=False) == "dead"
    assert (desk.state("a"), desk.job("a")["tries_left"]) == ("dead", "2")


async def test_a_failure_of_a_cancelled_job_ends_it(desk):
    lease = await desk.running("a")
    await desk.operate("cancel", "a")
    assert await desk.fail(lease, "cancelled") == "cancelled"
    assert desk.state("a") == "cancelled"
    assert desk.job("a")["attempt:1"].split("\n")[0].endswith(" cancelled")


def failures(desk):
    """Failed attempts: of the partition, and of the queue, by classes of their times."""
    counts = desk.raw.hgetall(keys.counts(desk.base))
    return desk.counter("failed"), sum(int(n) for name, n in counts.items() if " failed " in name)


async def test_an_attempt_that_was_stopped_on_request_did_not_fail(desk):
    lease = await desk.running("a")
    await desk.operate("cancel", "a")
    assert await desk.fail(lease, "cancelled", again=False) == "cancelled"
    assert (*failures(desk), desk.counter("cancelled")) == (0, 0, 1)


async def test_an_attempt_that_a_newer_submit_stopped_did_not_fail(desk):
    lease = await desk.running("a", rules="key=k")
    await desk.submit("b", rules="key=k on_conflict=cancel_running")
    assert await desk.fail(lease, "cancelled", again=False) == "cancelled"
    assert (*failures(desk), desk.counter("cancelled")) == (0, 0, 1)


@pytest.mark.parametrize(("code", "requested"), [("ValueError", True), ("cancelled", False)])
async def test_an_attempt_that_ended_by_itself_failed(desk, code, requested):
    """Also after a request to cancel it; and `cancelled` without one is a code as any other."""
    lease = await desk.running("a")
    if requested:
        await desk.operate("cancel", "a")
    await desk.fail(lease, code, again=False)
    failed, timed = failures(desk)
    assert (failed, timed >= 1) == (1, True)


# bounds


async def test_message_and_detail_are_cut_to_1_and_4_kib(desk):
    await desk.fail(await desk.running("a"), message="é" * 1000, detail="x" * 5000)
    _, message, detail = desk.job("a")["attempt:1"].split("\n", 2)
    assert (message, detail) == ("é" * 512, "x" * 4096)


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("letter", ["m", "é", "…", "👩"], ids=["one", "two", "three", "four"])
async def test_a_lists_error_has_whole_characters_of_the_first_200_bytes(desk, letter, shift):
    size = len(letter.encode())
    text = "x" * shift + letter * 300
    await desk.fail(await desk.running("a"), message=text)
    kept = desk.job("a")["error"].split(" ", 1)[1]
    assert text.startswith(kept)
    assert 200 - size < len(kept.encode()) <= 200


@pytest.mark.parametrize("text", ["", " ", "short é", "é" * 100])
async def test_a_lists_error_of_up_to_200_bytes_is_whole(desk, text):
    await desk.fail(await desk.running("a"), message=text)
    assert desk.job("a")["error"].split(" ", 1)[1] == text


async def test_a_script_cuts_long_messages_of_other_clients(desk):
    call = verbs.fail(desk.base, [Failure(await desk.running("a"), "Boom", "M", "D")])
    args = ["m" * 2000 if arg == b"M" else "d" * 9000 if arg == b"D" else arg for arg in call.commands[0]]
    desk.raw.execute_command("EVAL", call.text, *args[2:])
    assert desk.job("a")["attempt:1"].split("\n")[1:] == ["m" * 1024, "d" * 4096]


@pytest.mark.parametrize("code", ["", "two words", "a\nb", "naïve"])
async def test_an_invalid_code_becomes_failed(desk, code):
    await desk.fail(await desk.running("a"), code, "message")
    assert desk.job("a")["attempt:1"].split("\n")[0].endswith(" failed")


async def test_a_message_of_several_lines_stays_one_message(desk, store):
    await desk.fail(await desk.running("a"), "Boom", "line 1\nline 2\r\nline 3", "detail 1\ndetail 2")
    (attempt,) = (await store.follow(store.operations.get("a"))).attempts
    assert attempt.message == "line 1 line 2 line 3"
    assert attempt.detail == "detail 1\ndetail 2"


# once


async def test_a_repeated_failure_gets_the_same_reply_and_changes_nothing(desk):
    lease = await desk.running("a")
    answer = await desk.fail(lease, "Boom")
    before = desk.everything()
    assert await desk.fail(lease, "Boom") == answer
    assert await desk.fail(lease, "Else", again=False) == answer
    assert desk.everything() == before


async def test_a_job_twice_in_one_call_fails_once(desk):
    lease = await desk.running("a")
    one, two = await desk.run(verbs.fail(desk.base, [Failure(lease, "Boom"), Failure(lease, "Boom")]))
    assert one == two
    assert desk.counter("failed") == 1


async def test_a_failure_is_still_remembered_when_the_job_is_due_again(desk):
    lease = await desk.running("a")
    answer = await desk.fail(lease)
    desk.elapse(2)
    await desk.reap()
    assert await desk.fail(lease) == answer
    assert desk.state("a") == "queued"


async def test_a_failure_repeated_after_a_later_change_is_refused(desk):
    old = await desk.running("a", rules="backoff=0:1:0")
    await desk.fail(old)
    await desk.take("a")
    before = desk.everything()
    assert await desk.fail(old) == "LEASE_LOST"
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["complete", "release"])
async def test_a_job_with_another_outcome_cannot_fail(desk, verb):
    lease = await desk.running("a")
    await getattr(desk, verb)(lease)
    before = desk.everything()
    assert await desk.fail(lease) == "LEASE_LOST"
    assert desk.everything() == before


async def test_a_failure_is_refused_after_the_job_got_another_lease(desk):
    old = await desk.running("a")
    desk.elapse(30)
    await desk.take("a")
    before = desk.everything()
    assert await desk.fail(old) == "LEASE_LOST"
    assert desk.everything() == before


async def test_an_expired_lease_that_was_not_taken_back_may_still_fail(desk):
    lease = await desk.running("a")
    desk.elapse(3000)
    assert (await desk.fail(lease, "Boom")).startswith("scheduled")
    assert desk.job("a")["attempt:1"].split("\n")[0].endswith(" Boom")


async def test_a_failure_of_an_unknown_job_is_not_found(desk):
    lease = await desk.running("a")
    assert await desk.fail(lease._replace(id="nobody")) == "NOT_FOUND"
    assert desk.state("nobody") is None


async def test_each_lease_of_a_call_has_its_own_reply(desk):
    await desk.submit("a", "b", "c", "d")
    a, b, c, d = await desk.claim(4)
    await desk.complete(b)
    await desk.operate("cancel", "d")
    some = [
        Failure(a, "Boom"),
        Failure(b, "Boom"),
        Failure(c._replace(id="nobody"), "Boom"),
        Failure(d, "cancelled"),
    ]
    answers = await desk.run(verbs.fail(desk.base, [*some, Failure(c, "Boom", again=False)]))
    assert answers == [
        f"scheduled {desk.score('scheduled', 'a')}",
        "LEASE_LOST",
        "NOT_FOUND",
        "cancelled",
        "dead",
    ]
    assert [desk.state(i) for i in "abcd"] == ["scheduled", "completed", "dead", "cancelled"]


@pytest.mark.parametrize("again", ["false", "", "YES", "1", "yes "])
async def test_another_word_for_again_is_refused_and_changes_nothing(desk, again):
    await desk.submit("a", "b")
    first, second = await desk.claim(2)
    before = desk.everything()
    call = verbs.fail(desk.base, [Failure(first, "Boom"), Failure(second, "Boom")])
    words = (*call.commands[0][:-1], again)
    with pytest.raises(Invalid, match=f"again={again}: use yes or no"):
        await desk.run(Call((words,), call.read, call.text))
    assert desk.everything() == before
