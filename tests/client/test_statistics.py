"""Counters of a queue: running jobs, outcomes, durations, refusals."""

import asyncio
import re

import pytest

from sublet.connection.transport import follow
from sublet.errors import OutOfMemory
from sublet.model import Completion, Failure
from sublet.operations import statistics
from sublet.protocol import keys, reads, verbs


@pytest.fixture
def counted(desk):
    """The counters of a queue, without the sums of times."""

    def of(queue="q"):
        fields = {
            name.split(" ", 1)[1]: int(n)
            for name, n in desk.raw.hgetall(keys.counts(desk.base)).items()
            if name.startswith(queue + " ")
        }
        return {name: n for name, n in fields.items() if not name.endswith(" ms")}

    return of


@pytest.fixture
def running(desk):
    """The running jobs of a queue, by the scripts' own count."""
    return lambda queue="q": int(desk.raw.hget(keys.backlog(desk.base), f"{queue} running") or 0)


@pytest.fixture
def submitted_ago(desk):
    """Submit a job as if it had been so many ms ago."""

    async def submit(job_id, ms, rules=""):
        await desk.submit(job_id, rules=rules)
        name = keys.job(desk.base, job_id)
        desk.raw.hset(
            name,
            "spec",
            re.sub(
                r"^(\S+ \S+ )(\d+)",
                lambda found: found[1] + str(int(found[2]) - ms),
                desk.job(job_id)["spec"],
            ),
        )

    return submit


def claimed_ago(desk, job_id, ms):
    """Move the claim of a running job so many ms into the past."""
    name = keys.job(desk.base, job_id)
    desk.raw.hset(name, "claimed_at", int(desk.raw.hget(name, "claimed_at")) - ms)


# running jobs


async def test_a_job_counts_as_running_from_its_claim_to_its_end(desk, running):
    await desk.submit("a", "b", "c", "d", "e", "f")
    assert running() == 0
    a, b, c, d, e = await desk.claim(5)
    assert running() == 5
    await desk.complete(a)
    assert running() == 4
    await desk.fail(b)
    await desk.fail(c, again=False)
    assert running() == 2
    await desk.release(d)
    await desk.reconcile(e)
    assert (running(), desk.backlog()[0]) == (0, 4)


async def test_an_expired_lease_does_not_count_as_running(desk, running):
    await desk.submit("a", "b", "c")
    await desk.claim(3, lease=1)
    desk.elapse(2)
    await desk.reap(limit=1)
    assert running() == 2
    assert [lease.id for lease in await desk.claim(1)] == ["a"]
    assert running() == 1, "two leases expired, and one job was claimed"


async def test_a_batch_is_counted_as_a_whole(desk, running, counted):
    await desk.submit(*(f"j{i}" for i in range(40)))
    leases = await desk.claim(40)
    assert (running(), sum(n for name, n in counted().items() if name.startswith("wait"))) == (40, 40)
    await desk.run(verbs.complete(desk.base, [Completion(lease, b"1") for lease in leases[:20]]))
    await desk.run(verbs.fail(desk.base, [Failure(lease, "Boom", again=False) for lease in leases[20:39]]))
    assert (running(), counted()["dead jobs"]) == (1, 19)
    assert sum(n for name, n in counted().items() if name.startswith("completed")) == 20
    assert sum(n for name, n in counted().items() if name.startswith("failed")) == 19


async def test_a_repeated_claim_and_an_empty_one_count_nothing(desk, running, counted):
    await desk.submit("late", rules="delay=60000")
    await desk.submit("a")
    await desk.ask(5, claim_id="c" * 22)
    before = running(), counted()
    await desk.ask(5, claim_id="c" * 22)
    await desk.ask(5)
    desk.raw.zadd(keys.queue(desk.base, "q"), {"unknown": 1})
    await desk.ask(5)
    assert (running(), counted()) == before
    assert running() == 1


async def test_the_running_count_is_never_negative_and_restarts_in_an_empty_queue(desk, running):
    lease = await desk.running("a")
    desk.raw.hdel(keys.backlog(desk.base), "q running")  # as if a client with old scripts had claimed it
    await desk.submit("b")
    await desk.release(lease)
    assert running() == 0
    desk.raw.hset(keys.backlog(desk.base), "q running", 7)
    for job_id in "ab":
        await desk.complete(await desk.take(job_id))
    assert running() == 0
    assert not desk.raw.exists(keys.backlog(desk.base))


async def test_each_queue_is_counted_separately(desk, running, counted):
    await desk.submit("a", "b")
    await desk.submit("c", queue="r")
    leases = await desk.claim(3, queues=("q", "r"))
    assert (running("q"), running("r")) == (2, 1)
    await desk.run(verbs.complete(desk.base, [Completion(lease, b"1") for lease in leases]))
    assert [
        sum(n for name, n in counted(queue).items() if name.startswith("completed")) for queue in "qr"
    ] == [2, 1]


# outcomes


async def test_outcomes_of_jobs_are_counted(desk, counted):
    await desk.submit("late", rules="delay=60000")
    await desk.operate("cancel", "late")
    await desk.fail(await desk.running("a"), again=False)
    await desk.operate("retry", "a")
    lease = await desk.take("a")
    await desk.operate("cancel", "a")
    await desk.release(lease)
    await desk.running("b", rules="tries=1", lease=1)
    await desk.running("c", rules="tries=1")
    desk.elapse(2)
    await desk.reap()
    await desk.run(verbs.reconcile(desk.base, "w", "1", [("c", 1)]))
    ended = {name: n for name, n in counted().items() if name.endswith(" jobs")}
    assert ended == {"cancelled jobs": 2, "dead jobs": 3}


# durations


@pytest.mark.parametrize(
    ("ago", "rules", "bound"),
    [
        (0, "", None),
        (1200, "", "2000"),
        (50_000, "", "60000"),
        (4_000_000, "", "inf"),
        (51_000, "delay=45000", "15000"),
        (50_000, "delay=60000", "5"),
    ],
)
async def test_a_job_waits_from_its_due_time_to_its_first_claim(
    desk, submitted_ago, counted, ago, rules, bound
):
    await submitted_ago("a", ago, rules)
    if rules:
        await desk.operate("promote", "a")
    await desk.take("a")
    (name,) = counted()
    assert name.startswith("wait ")
    assert bound in (None, name.removeprefix("wait "))
    total = int(desk.raw.hget(keys.counts(desk.base), "q wait ms"))
    waited = max(0, ago - int(rules.partition("=")[2] or 0))
    assert waited <= total < waited + 2000


async def test_a_rescheduled_job_waits_from_its_new_time(desk, submitted_ago):
    await submitted_ago("a", 4_000_000)
    moment = desk.now() + 5000
    assert await desk.operate("reschedule", "a", None, f"at={moment}") == f"scheduled {moment}"
    desk.elapse(6)
    await desk.take("a")
    assert int(desk.raw.hget(keys.counts(desk.base), "q wait ms")) == 0


async def test_readers_know_since_when_a_rescheduled_job_is_due(desk):
    async def due():
        return await desk.run(statistics.due(desk.base, ["a"]))

    await desk.submit("a", rules="at=1000 schedule=s tries=5")
    assert await desk.fail(await desk.take("a")) == f"scheduled {(await due())[0]}"
    await desk.operate("reschedule", "a", 1, "at=4102444800000")
    assert await due() == [4_102_444_800_000]
    await desk.operate("promote", "a")
    assert await desk.fail(await desk.take("a")) == f"scheduled {(await due())[0]}", (
        "no longer the last change"
    )


@pytest.mark.parametrize("verb", ["retry", "promote", "reschedule"])
async def test_after_an_order_the_age_of_a_job_counts_from_the_order(desk, submitted_ago, verb):
    before = desk.now()
    await submitted_ago("a", 4_000_000, "delay=86400000" if verb == "promote" else "")
    if verb == "retry":
        await desk.operate("cancel", "a")
    rules = ["delay=0"] if verb == "reschedule" else []
    assert await desk.operate(verb, "a", None, *rules) == "queued"
    (since,) = await desk.run(statistics.due(desk.base, ["a"]))
    assert before <= since <= desk.now()
    await desk.release(await desk.take("a"))
    assert "ready_at" not in desk.job("a")


async def test_the_waiting_time_begins_no_earlier_than_the_submit(desk, submitted_ago, counted):
    now = desk.now()
    await submitted_ago("a", 100_000, f"at={now - 50_000}")
    await desk.submit("b", rules="at=1")
    await desk.claim(2)
    assert counted().pop("wait 60000") == 1
    assert int(desk.raw.hget(keys.counts(desk.base), "q wait ms")) < 60_000


async def test_only_the_first_attempt_counts_as_waiting(desk, counted):
    await desk.release(await desk.running("a"))
    await desk.take("a")
    assert sum(counted().values()) == 1


async def test_the_duration_of_an_attempt_ends_when_its_outcome_is_accepted(desk, counted):
    lease, other = await desk.running("a"), await desk.running("b")
    claimed_ago(desk, "a", 50_000)
    claimed_ago(desk, "b", 700_000)
    assert await desk.complete(lease) == await desk.complete(lease) == "completed"
    assert (await desk.fail(other)).startswith("scheduled")
    taken = {name: n for name, n in counted().items() if not name.startswith("wait")}
    assert taken == {"completed 60000": 1, "failed 900000": 1}
    sums = [int(desk.raw.hget(keys.counts(desk.base), f"q {what} ms")) for what in ("completed", "failed")]
    assert 50_000 <= sums[0] < 52_000
    assert 700_000 <= sums[1] < 702_000


async def test_no_duration_is_negative_when_the_clock_is_set_back(desk, counted):
    lease = await desk.running("a")
    claimed_ago(desk, "a", -50_000)
    await desk.complete(lease)
    assert counted()["completed 5"] == 1
    assert desk.raw.hget(keys.counts(desk.base), "q completed ms") == "0"


# limits


async def test_beyond_a_limit_new_queues_are_counted_together(desk, counted):
    await desk.running("a")
    desk.raw.hset(keys.counts(desk.base), mapping={f"x{i} dead jobs": 1 for i in range(20_000)})
    await desk.submit("new", queue="r")
    await desk.operate("cancel", "new")
    await desk.submit("b")
    await desk.operate("cancel", "b")
    assert counted("q")["cancelled jobs"] == 1
    assert (counted("r"), counted("*")) == ({}, {"cancelled jobs": 1})
    (found,) = await follow(desk.run, statistics.queues(desk.base, ["*"]))
    assert found.cancelled == 1


# refusals


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
async def test_a_late_outcome_is_counted_and_changes_nothing(desk, verb):
    old = await desk.running("a", lease=1)
    desk.elapse(2)
    await desk.reap()
    await desk.take("a")
    before = desk.everything()
    assert [await getattr(desk, verb)(lease) for lease in (old, old._replace(id="unknown"))] == [
        "LEASE_LOST",
        "NOT_FOUND",
    ]
    assert desk.everything() == before
    assert desk.counter("lease_lost") == 1


async def test_a_job_for_a_full_queue_is_counted_and_changes_nothing(desk):
    await desk.operate_queue("configure", "q", 0, "jobs=1")
    answers = await desk.submit("a", "b", "c")
    assert [str(answer).split()[0] for answer in answers[1:]] == ["QUEUE_FULL"] * 2
    assert desk.counter("queue_full") == 2
    before = desk.everything()
    await desk.submit("d")
    assert (desk.everything(), desk.counter("queue_full")) == (before, 3)


@pytest.mark.real_server
async def test_a_full_queue_on_a_full_server_is_reported_as_a_full_queue(desk, place):
    if place.is_given:
        pytest.skip("SUBLET_TEST_REDIS_URL is somebody's server: its memory limit is not ours to set")
    await desk.operate_queue("configure", "q", 0, "jobs=0")
    desk.raw.config_set("maxmemory", 1)
    try:
        (answer,) = await desk.submit("a")
        with pytest.raises(OutOfMemory):
            await desk.submit("b", queue="r")
    finally:
        desk.raw.config_set("maxmemory", 0)
    assert (str(answer).split()[0], desk.counter("queue_full")) == ("QUEUE_FULL", 1)


# the rule `digest`


async def test_a_digest_is_stored_with_the_job(desk):
    await desk.submit("a", rules="digest=0123456789abcdef priority=5", payload=b'"digest=no words=of mine"')
    await desk.submit("b", payload=b" digest=ffffffffffffffffffff")
    found = await asyncio.gather(
        *(desk.run(reads.digest(desk.base, job_id)) for job_id in ("a", "b", "unknown"))
    )
    assert found == ["0123456789abcdef", None, None]
    assert (await desk.take("a")).payload == b'"digest=no words=of mine"'
    assert (await desk.run(reads.get(desk.base, "a"))).priority == 5


@pytest.mark.parametrize("digest", ["0" * 15, "0" * 129, "xyz" * 10, "", "0" * 16 + "-"])
async def test_a_digest_has_16_to_128_hexadecimal_digits(desk, digest):
    (answer,) = await desk.submit("a", rules=f"digest={digest}")
    assert str(answer).startswith("INVALID rule digest=")
    assert (await desk.submit("b", rules="digest=" + "aF" * 64))[0].created
