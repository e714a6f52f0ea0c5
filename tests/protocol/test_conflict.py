"""A key with `debounce`, or with `on_conflict`: the effect of a submit on the jobs that have the key."""

import pytest

from sublet.model import Submission, Submitted
from sublet.protocol import keys, reads, verbs

DEBOUNCE = "key=k debounce=30000 at_most=300000"
REPLACE = "key=k on_conflict=replace"
CANCEL = "key=k on_conflict=cancel_running"
MODES = pytest.mark.parametrize("rules", [DEBOUNCE, REPLACE, CANCEL])


def created(job_id):
    return [Submitted(job_id, True)]


def replaced(job_id):
    return [Submitted(job_id, False, True)]


async def submit(desk, job_id, rules, payload=None, **how):
    return await desk.submit(job_id, rules=rules, payload=payload or job_id.encode(), **how)


def due_in(desk, job_id):
    """In how many seconds the scheduled job is due, rounded."""
    return round((desk.score("scheduled", job_id) - desk.now()) / 1000)


async def shown(desk, job_id):
    return await desk.run(reads.get(desk.base, job_id))


# debounce


async def test_a_debounced_job_runs_once_after_the_last_submit_with_its_arguments(desk):
    assert await submit(desk, "a", DEBOUNCE) == created("a")
    assert (desk.state("a"), due_in(desk, "a")) == ("scheduled", 30)
    desk.elapse(20)
    assert await submit(desk, "b", DEBOUNCE + " priority=5 tags=x tries=7") == replaced("a")
    assert due_in(desk, "a") == 30
    desk.elapse(29)
    assert await desk.claim() == []
    desk.elapse(1)
    lease = await desk.take("a")
    assert (lease.payload, lease.tags, lease.max_attempts) == (b"b", ("x",), 7)
    await desk.complete(lease)
    assert await desk.claim() == []
    assert desk.counter("submitted") == 1


async def test_a_debounced_job_is_due_at_most_that_long_after_its_first_submit(desk):
    await submit(desk, "a", DEBOUNCE)
    for n in range(11):
        desk.elapse(25)
        assert await submit(desk, f"b{n}", DEBOUNCE) == replaced("a")
        assert due_in(desk, "a") == min(30, 300 - 25 * (n + 1))
    desk.elapse(25)
    assert await submit(desk, "last", DEBOUNCE) == replaced("a")
    assert (await desk.take("a")).payload == b"last"


async def test_without_at_most_a_debounce_goes_on(desk):
    await submit(desk, "a", "key=k debounce=30000")
    for n in range(30):
        desk.elapse(25)
        assert await submit(desk, f"b{n}", "key=k debounce=30000") == replaced("a")
    assert due_in(desk, "a") == 30


async def test_a_debounced_job_that_is_queued_already_waits_again(desk):
    await submit(desk, "a", DEBOUNCE)
    desk.elapse(40)
    await desk.reap()
    assert desk.state("a") == "queued"
    assert await submit(desk, "b", DEBOUNCE) == replaced("a")
    assert (desk.state("a"), desk.members("queue:q"), due_in(desk, "a")) == ("scheduled", [], 30)
    desk.elapse(280)
    await desk.reap()
    assert await submit(desk, "c", DEBOUNCE) == replaced("a")
    assert (desk.state("a"), desk.members("queue:q"), desk.members("scheduled")) == ("queued", ["a"], [])


async def test_the_job_shows_how_often_and_when_its_arguments_were_replaced(desk):
    await submit(desk, "a", DEBOUNCE)
    first = await shown(desk, "a")
    assert (first.replaced, first.replaced_at) == (0, None)
    await submit(desk, "b", DEBOUNCE)
    await submit(desk, "c", DEBOUNCE)
    job = await shown(desk, "a")
    assert (job.replaced, job.submitted_at, job.revision) == (2, first.submitted_at, 2)
    assert abs(job.replaced_at.timestamp() * 1000 - desk.now()) < 5000
    desk.elapse(30)
    await desk.complete(await desk.take("a"))
    assert (await shown(desk, "a")).replaced == 2
    events = await desk.run(reads.events(desk.base, "0", 100))
    assert [(e["jobs"], e["state"], e["code"]) for _, e in events][:3] == [
        ("a", "scheduled", "submitted"), ("a", "scheduled", "replaced"), ("a", "scheduled", "replaced"),
    ]  # fmt: skip


# replace


async def test_a_queued_job_that_is_replaced_keeps_its_turn_among_jobs_of_its_priority(desk):
    await submit(desk, "a", REPLACE)
    await desk.submit("z")
    assert await submit(desk, "b", REPLACE, task="other") == replaced("a")
    assert desk.members("queue:q") == ["a", "z"]
    first, _ = await desk.claim(2)
    assert (first.id, first.task, first.payload) == ("a", "other", b"b")


async def test_a_replacement_has_its_own_moment_and_priority(desk):
    await submit(desk, "a", REPLACE)
    assert await submit(desk, "b", REPLACE + " delay=60000") == replaced("a")
    assert (desk.state("a"), due_in(desk, "a"), desk.members("queue:q")) == ("scheduled", 60, [])
    await desk.submit("z")
    assert await submit(desk, "c", REPLACE + " priority=7") == replaced("a")
    assert (desk.members("scheduled"), desk.members("queue:q")) == ([], ["a", "z"])


async def test_a_plain_submit_with_the_key_still_returns_the_job(desk):
    await submit(desk, "a", REPLACE)
    assert await submit(desk, "b", "key=k") == [Submitted("a", False)]
    assert (await desk.take("a")).payload == b"a"


@MODES
async def test_a_job_that_was_submitted_with_the_key_alone_is_replaced(desk, rules):
    await submit(desk, "a", "key=k keep=1 window=60000")
    assert await submit(desk, "b", rules) == replaced("a")
    assert desk.raw.pttl(keys.lock(desk.base, "q", "k")) == -1
    assert "keep=1" not in desk.job("a")["spec"]


@MODES
async def test_a_large_payload_takes_the_place_of_a_small_one_and_back(desk, rules):
    big = b"x" * 5000
    await submit(desk, "a", rules)
    for n, payload in enumerate((big, b"small", big, b"y" * 3000, b"")):
        assert await desk.submit(f"b{n}", rules=rules, payload=payload) == replaced("a")
        assert desk.backlog() == (1, len(payload))
        assert ("payload" in desk.job("a")) == (len(payload) > 1024)
    desk.elapse(60)
    assert (await desk.take("a")).payload == b""


# a running job


@MODES
async def test_beside_a_running_job_a_new_one_waits_for_its_end(desk, rules):
    running = await desk.running("a", "key=k", lease=600)
    assert await submit(desk, "b", rules) == created("b")
    assert (desk.state("b"), (await shown(desk, "b")).after) == ("scheduled", "a")
    assert await submit(desk, "c", rules) == replaced("b")
    desk.elapse(100)
    assert await desk.claim() == []
    assert desk.state("b") == "scheduled"
    assert await desk.complete(running) == "completed"
    lease = await desk.take("b")
    assert lease.payload == b"c"
    assert await submit(desk, "d", "key=k") == [Submitted("b", False)]
    await desk.complete(lease)
    assert await submit(desk, "d", rules) == created("d")
    assert (await shown(desk, "d")).after is None


async def test_a_job_behind_a_running_one_still_waits_for_its_own_moment(desk):
    running = await desk.running("a", "key=k")
    await submit(desk, "b", DEBOUNCE)
    await desk.complete(running)
    assert (due_in(desk, "b"), await desk.claim()) == (30, [])
    desk.elapse(30)
    await desk.take("b")


async def test_a_job_behind_a_running_one_is_looked_at_again_each_minute(desk):
    """If the running job's data vanish, its end is never reported."""
    await desk.running("a", "key=k", lease=3600)
    await submit(desk, "b", REPLACE)
    assert await desk.claim() == []
    assert due_in(desk, "b") == 60
    desk.raw.delete(keys.job(desk.base, "a"))
    desk.elapse(60)
    await desk.take("b")


@pytest.mark.parametrize("end", ["fail", "release", "reap", "reconcile"])
@MODES
async def test_a_running_job_with_a_newer_one_behind_it_is_not_tried_again(desk, rules, end):
    """It would be a second waiting job of its key, with older arguments."""
    running = await desk.running("a", "key=k tries=9", lease=60)
    await submit(desk, "b", rules)
    if end == "fail":
        await desk.fail(running)
    elif end == "release":
        await desk.release(running)
    elif end == "reconcile":
        await desk.reconcile(running)
    else:
        desk.elapse(65)
        await desk.reap()
    assert desk.state("a") == "cancelled"
    desk.elapse(30)
    await desk.take("b")


async def test_a_running_job_without_a_try_left_is_dead_also_with_a_newer_one_behind_it(desk):
    running = await desk.running("a", "key=k tries=1")
    await submit(desk, "b", REPLACE)
    assert await desk.fail(running) == "dead"
    await desk.take("b")


async def test_replace_leaves_the_running_job_alone(desk):
    running = await desk.running("a", "key=k")
    await submit(desk, "b", REPLACE)
    assert isinstance(await desk.heartbeat(running), int)
    assert desk.revision("a") == 1


async def test_cancel_running_requests_the_end_of_the_running_job_once(desk):
    running = await desk.running("a", "key=k")
    assert await submit(desk, "b", CANCEL) == created("b")
    assert await desk.heartbeat(running) == "CANCEL_REQUESTED"
    assert desk.revision("a") == 2
    assert await submit(desk, "c", CANCEL) == replaced("b")
    assert desk.revision("a") == 2
    assert await desk.fail(running) == "cancelled"
    assert (await desk.take("b")).payload == b"c"


async def test_cancel_running_also_reaches_the_job_that_runs_before_a_waiting_one(desk):
    running = await desk.running("a", "key=k")
    await submit(desk, "b", REPLACE)
    assert await submit(desk, "c", CANCEL) == replaced("b")
    assert await desk.heartbeat(running) == "CANCEL_REQUESTED"


async def test_the_running_job_holds_the_key_again_when_the_one_behind_it_ends(desk):
    running = await desk.running("a", "key=k")
    await submit(desk, "b", REPLACE)
    await desk.operate("cancel", "b")
    assert await submit(desk, "c", "key=k") == [Submitted("a", False)]
    await desk.complete(running)
    assert await submit(desk, "c", "key=k") == created("c")


async def test_a_running_job_with_a_window_holds_the_key_again_until_its_end(desk):
    running = await desk.running("a", "key=k window=1000")
    await submit(desk, "b", REPLACE)
    await desk.operate("cancel", "b")
    desk.elapse(10)
    assert await submit(desk, "c", "key=k") == [Submitted("a", False)]
    await desk.complete(running)
    assert await submit(desk, "c", "key=k") == created("c")


# a job that was tried


@pytest.mark.parametrize("how", ["fail", "release", "reap"])
@MODES
async def test_a_job_that_waits_for_its_next_try_is_replaced_with_all_its_tries(desk, rules, how):
    lease = await desk.running("a", "key=k tries=2 backoff=90000:1:90000", lease=60)
    await desk.note(lease, b'"checkpoint"')
    if how == "fail":
        await desk.fail(lease)
    elif how == "release":
        await desk.release(lease, delay=90)
    else:
        desk.elapse(65)
        await desk.reap()
    assert await submit(desk, "b", rules + " tries=2") == replaced("a")
    desk.elapse(30)
    again = await desk.take("a")
    assert (again.payload, again.checkpoint, again.tries_left, again.attempt) == (b"b", b"", 1, 2)
    assert await desk.complete(lease) == "LEASE_LOST"


async def test_the_first_submit_after_a_try_begins_the_time_of_at_most(desk):
    await submit(desk, "a", DEBOUNCE)
    desk.elapse(31)
    await desk.release(await desk.take("a"), delay=1000)
    desk.elapse(280)
    assert await submit(desk, "b", DEBOUNCE) == replaced("a")
    assert due_in(desk, "a") == 30


async def test_after_a_try_later_submits_do_not_begin_the_time_of_at_most_again(desk):
    await submit(desk, "a", "key=k debounce=30000 at_most=50000")
    desk.elapse(31)
    await desk.release(await desk.take("a"), delay=1000000)
    for job_id, left in (("b", 30), ("c", 30), ("d", 10)):
        assert await submit(desk, job_id, "key=k debounce=30000 at_most=50000") == replaced("a")
        assert due_in(desk, "a") == left
        desk.elapse(20)


# sent again


@MODES
async def test_a_submit_that_is_sent_again_changes_nothing(desk, rules):
    await submit(desk, "a", rules)
    assert await submit(desk, "b", rules) == replaced("a")
    assert await submit(desk, "c", rules) == replaced("a")
    desk.elapse(10)
    before = desk.everything()
    for job_id, answer in (("b", replaced("a")), ("c", replaced("a")), ("a", [Submitted("a", False)])):
        assert await submit(desk, job_id, rules) == answer
    assert desk.everything() == before
    desk.elapse(30)
    lease = await desk.take("a")
    assert lease.payload == b"c"
    before = desk.everything()
    assert await submit(desk, "b", rules) == replaced("a")
    assert desk.everything() == before
    await submit(desk, "d", rules)
    before = desk.everything()
    assert await submit(desk, "b", rules) == replaced("a"), "which has got its arguments"
    assert desk.everything() == before


async def test_a_job_knows_the_last_50_submits(desk):
    await submit(desk, "a", REPLACE)
    for n in range(60):
        await submit(desk, f"b{n}", REPLACE)
    assert desk.job("a")["joined"].split(" ") == [f"b{n}" for n in range(59, 9, -1)]


async def test_the_digest_stays_that_of_the_jobs_own_id(desk):
    await submit(desk, "a", DEBOUNCE + " digest=" + "a" * 32)
    await submit(desk, "b", DEBOUNCE + " digest=" + "b" * 32)
    assert await desk.run(reads.digest(desk.base, "a")) == "a" * 32


# in one call


@MODES
async def test_jobs_of_one_key_in_one_call_are_one(desk, rules):
    def jobs(*ids):
        return [Submission(i, "q", "t", rules, i.encode()) for i in ids]

    answers = await desk.run(verbs.submit(desk.base, jobs("a", "b", "c", "b")))
    assert answers == [*created("a"), *replaced("a"), *replaced("a"), *replaced("a")]
    assert (desk.backlog(), desk.counter("submitted"), (await shown(desk, "a")).replaced) == ((1, 1), 1, 2)
    answers = await desk.run(verbs.submit(desk.base, jobs("d", "e", "a")))
    assert answers == [*replaced("a"), *replaced("a"), Submitted("a", False)]
    desk.elapse(30)
    lease = await desk.take("a")
    assert (lease.payload, (await shown(desk, "a")).replaced) == (b"e", 4)
    answers = await desk.run(verbs.submit(desk.base, jobs("f", "g")))
    assert answers == [*created("f"), *replaced("f")]
    assert (await shown(desk, "f")).after == "a"
    assert desk.backlog() == (2, 2)


# limits, pauses, memory


@MODES
async def test_a_full_queue_takes_a_replacement_that_fits(desk, rules):
    await submit(desk, "a", rules, b"12345")
    await desk.operate_queue("configure", "q", 0, "jobs=1 bytes=10")
    assert await submit(desk, "b", rules, b"1234567890") == replaced("a")
    before = desk.job("a")
    (answer,) = await submit(desk, "c", rules, b"12345678901")
    assert str(answer).startswith("QUEUE_FULL queue q may hold 10 bytes and has 10")
    assert desk.job("a") == before
    assert await submit(desk, "d", rules, b"1") == replaced("a")
    assert desk.backlog() == (1, 1)


async def test_a_full_queue_refuses_the_job_behind_a_running_one_and_cancels_nothing(desk):
    running = await desk.running("a", "key=k")
    await desk.operate_queue("configure", "q", 0, "jobs=1")
    (answer,) = await submit(desk, "b", CANCEL)
    assert str(answer).startswith("QUEUE_FULL")
    assert isinstance(await desk.heartbeat(running), int)


@MODES
async def test_a_job_in_a_paused_queue_is_replaced(desk, rules):
    await submit(desk, "a", rules)
    await desk.operate_queue("pause", "q", 0)
    assert await submit(desk, "b", rules) == replaced("a")
    desk.elapse(30)
    assert await desk.claim() == []
    await desk.operate_queue("resume", "q", 1)
    assert (await desk.take("a")).payload == b"b"


async def test_a_question_whether_a_job_is_known_replaces_nothing(desk):
    await submit(desk, "a", REPLACE)
    before = desk.everything()
    assert await desk.run(verbs.known(desk.base, [Submission("b", "q", "t", REPLACE, b"")])) == [True]
    assert desk.everything() == before
    await desk.take("a")
    assert await desk.run(verbs.known(desk.base, [Submission("b", "q", "t", REPLACE, b"")])) == [False]


async def test_onto_names_the_only_job_that_may_be_replaced(desk):
    await submit(desk, "a", REPLACE)
    before = desk.everything()
    assert await submit(desk, "b", REPLACE + " onto=b") == [Submitted("a", False)]
    assert desk.everything() == before
    assert await submit(desk, "b", REPLACE + " onto=a") == replaced("a")
    assert "onto" not in desk.job("a")["spec"]
    await desk.take("a")
    assert await submit(desk, "c", REPLACE + " onto=a") == created("c")


async def test_a_key_is_free_after_the_end_of_each_job(desk):
    for n in range(3):
        assert await submit(desk, f"a{n}", DEBOUNCE) == created(f"a{n}")
        desk.elapse(30)
        await desk.complete(await desk.take(f"a{n}"))
    assert not desk.raw.exists(keys.lock(desk.base, "q", "k"))


# operators, and what is stored


async def test_an_order_for_the_arguments_before_is_refused(desk):
    await submit(desk, "a", DEBOUNCE)
    await submit(desk, "b", DEBOUNCE)
    with pytest.raises(Exception, match="is at revision 1, not 0"):
        await desk.operate("cancel", "a", 0)


async def test_the_doctor_finds_no_fault_and_the_numbers_agree(desk):
    await submit(desk, "a", DEBOUNCE)
    await submit(desk, "b", DEBOUNCE)
    desk.elapse(30)
    await desk.take("a")
    await submit(desk, "c", CANCEL)
    seen = [("key:q|k", "a"), ("key:q|k", "c"), ("running", "a"), ("scheduled", "c")]
    assert await desk.run(verbs.repair(desk.base, "look", seen)) == ["sound"] * 4


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("debounce=1000", "debounce=1000: give the key that it is for"),
        ("on_conflict=replace", "on_conflict=replace: give the key that it is for"),
        ("key=k at_most=1000", "at_most=1000: at_most is the end of a debounce: give debounce, too"),
        ("key=k debounce=1000 at_most=999", "debounce=1000: at_most must not be less than debounce"),
        ("key=k debounce=1000 on_conflict=replace", "debounce=1000: debounce replaces what waits: leave out"),
        ("key=k on_conflict=ignore", "on_conflict=ignore: use replace or cancel_running"),
        ("key=k on_conflict=Replace", "on_conflict=Replace: use replace or cancel_running"),
        ("key=k on_conflict=replace window=1000", "on_conflict=replace: leave out window"),
        ("key=k debounce=1000 delay=5", "debounce=1000: it sets the moment: leave out at and delay"),
        ("key=k debounce=0", "debounce=0: use ms from 1, at most 14 digits"),
        ("key=k debounce=-5", "debounce=-5: use ms from 1, at most 14 digits"),
        ("key=k debounce=1000 at_most=soon", "at_most=soon: use ms from 1, at most 14 digits"),
    ],
)
async def test_rules_that_do_not_fit_together_are_refused(desk, rules, words):
    before = desk.everything()
    (answer,) = await submit(desk, "a", rules)
    assert str(answer).startswith(f"INVALID rule {words}")
    assert desk.everything() == before
