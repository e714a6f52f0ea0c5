"""claim: take jobs from the queues, each under a new lease."""

import pytest

from sublet.errors import TooMany
from sublet.protocol import keys

LARGE = 256 * 1024


def ids(leases):
    return [lease.id for lease in leases]


# the lease


async def test_a_claimed_job_is_running_under_a_lease(desk):
    await desk.submit("a", payload=b'{"x": 1}', task="resize")
    (lease,) = await desk.claim(worker="host-1", claim_id="0123456789abcdefghijkl", lease=20)
    assert desk.state("a") == "running"
    assert lease[3:] == (
        desk.score("running", "a"),
        "q",
        "resize",
        300_000,
        b'{"x": 1}',
        "",
        "",
        b"",
        None,
        3,
        2,
        (),
        False,
        None,
    )
    assert (lease.id, lease.attempt) == ("a", 1)
    job = desk.job("a")
    assert set(job) == {"state", "spec", "token", "attempt", "tries_left", "worker", "claimed_at", "rank"}
    assert (job["token"], job["worker"], job["attempt"], job["tries_left"]) == (
        lease.token,
        "host-1",
        "1",
        "2",
    )
    assert lease.expires_ms - int(job["claimed_at"]) == 20_000
    assert desk.members("queue:q") == []


async def test_a_token_joins_the_fence_and_the_claim_id(desk):
    lease = await desk.running("a", claim_id="0123456789abcdefghijkl")
    assert lease.token == f"{desk.raw.hget(desk.base, 'fence')}.0123456789abcdefghijkl"
    assert lease.fence == int(desk.raw.hget(desk.base, "fence"))
    assert abs(lease.fence - desk.now() * 1000) < 5_000_000


async def test_jobs_of_one_claim_share_a_token(desk):
    await desk.submit("a", "b")
    assert len({lease.token for lease in await desk.claim(2)}) == 1


async def test_the_fence_only_grows(desk):
    fences = [(await desk.running(f"j{i}")).fence for i in range(5)]
    assert fences == sorted(set(fences))


async def test_the_fence_grows_even_when_the_clock_was_ahead(desk):
    ahead = 5_000_000_000_000_000
    desk.raw.hset(desk.base, "fence", ahead)
    assert (await desk.running("a")).fence == ahead + 1


@pytest.mark.parametrize(
    ("rules", "lease", "length"),
    [
        ("", 30, 30_000),
        ("", 400, 305_000),
        ("timeout=10000", 30, 15_000),
        ("timeout=none", 400, 400_000),
        ("timeout=0", 30, 5_000),
    ],
)
async def test_a_lease_ends_as_requested_or_5_s_after_the_timeout(desk, rules, lease, length):
    taken = await desk.running("a", rules=rules, lease=lease)
    assert taken.expires_ms - int(desk.job("a")["claimed_at"]) == length


@pytest.mark.parametrize(
    ("rules", "timeout"), [("", 300_000), ("timeout=1500", 1500), ("timeout=none", None)]
)
async def test_a_lease_contains_the_timeout_of_the_attempt(desk, rules, timeout):
    assert (await desk.running("a", rules=rules)).timeout_ms == timeout


async def test_each_claim_uses_a_try_and_counts_an_attempt(desk):
    for attempt in (1, 2, 3):
        if attempt == 1:
            await desk.submit("a", rules="tries=3 backoff=0:1:0")
        lease = await desk.take("a")
        assert (lease.attempt, desk.job("a")["tries_left"]) == (attempt, str(3 - attempt))
        await desk.fail(lease)


async def test_the_next_attempt_gets_the_code_of_the_last_one(desk):
    await desk.fail(await desk.running("a", rules="backoff=0:1:0"), code="ValueError")
    lease = await desk.take("a")
    assert lease.recovered == "ValueError"
    await desk.release(lease)
    assert (await desk.take("a")).recovered == "released"


@pytest.mark.parametrize(
    ("end", "left", "lost"),
    [("fail", 1, False), ("release", 2, False), ("expire", 1, True), ("reconcile", 1, True)],
)
async def test_the_next_attempt_gets_the_tries_left_and_whether_a_lease_was_lost(desk, end, left, lost):
    lease = await desk.running("a", rules="tries=3 backoff=0:1:0", lease=10)
    assert (lease.max_attempts, lease.tries_left, lease.lost) == (3, 2, False)
    if end == "expire":
        desk.elapse(11)
    else:
        await getattr(desk, end)(lease)
    claim_id = "c" * 22
    again = await desk.take("a", worker="another", claim_id=claim_id)
    assert (again.max_attempts, again.tries_left, again.lost) == (3, left, lost)
    assert [again] == await desk.claim(worker="another", claim_id=claim_id), "a repeated claim gets the same"


async def test_claims_are_events_that_name_the_worker(desk):
    await desk.submit("a", "b")
    await desk.claim(2, worker="host-1")
    assert desk.events()[-1] == ("a b", "running", "host-1")


# which jobs


async def test_queues_are_claimed_in_the_given_order(desk):
    await desk.submit("b1", "b2", queue="second")
    await desk.submit("a1", "a2", queue="first")
    queues = ("first", "second")
    assert ids(await desk.claim(3, queues=queues)) == ["a1", "a2", "b1"]
    assert ids(await desk.claim(3, queues=queues)) == ["b2"]


async def test_an_unnamed_queue_is_not_claimed_from(desk):
    await desk.submit("a", queue="other")
    assert await desk.claim(queues=("q",)) == []
    assert desk.state("a") == "queued"


async def test_a_claim_takes_at_most_the_requested_number_of_jobs(desk):
    await desk.submit("a", "b", "c")
    assert ids(await desk.claim(2)) == ["a", "b"]
    assert desk.members("queue:q") == ["c"]


async def test_a_claim_takes_at_most_100_jobs_and_32_queues(desk):
    await desk.submit(*(f"j{i:03}" for i in range(101)))
    before = desk.everything()
    with pytest.raises(TooMany, match="101 items: a call takes 0 to 100"):
        await desk.claim(101)
    with pytest.raises(TooMany, match="33 items: a call takes 0 to 32"):
        await desk.claim(1, queues=tuple(f"q{i}" for i in range(33)))
    assert desk.everything() == before
    assert len(await desk.claim(100, queues=("q", *(f"q{i}" for i in range(31))))) == 100


# large payloads


async def test_a_claim_stops_before_1_mib(desk):
    await desk.submit(*"abcdef", payload=b"x" * LARGE)
    await desk.submit("small", payload=b"s")
    assert ids(await desk.claim(10)) == ["a", "b", "c"]
    assert ids(await desk.claim(10)) == ["d", "e", "f", "small"]


async def test_a_job_of_more_than_1_mib_is_taken_alone(desk):
    await desk.submit("a", payload=b"x" * (LARGE * 5))
    await desk.submit("b", payload=b"x" * LARGE)
    leases = await desk.claim(10)
    assert ids(leases) == ["a"]
    assert len(leases[0].payload) == LARGE * 5
    assert ids(await desk.claim(10)) == ["b"]


async def test_a_full_reply_keeps_the_order_of_the_queues(desk):
    await desk.submit(*"abcde", queue="first", payload=b"x" * LARGE)
    await desk.submit("z", queue="second")
    assert ids(await desk.claim(10, queues=("first", "second"))) == ["a", "b", "c"]
    assert desk.members("queue:first") == ["d", "e"]
    assert desk.state("z") == "queued"


async def test_small_jobs_are_taken_by_the_hundred(desk):
    await desk.submit(*(f"j{i}" for i in range(100)), payload=b"x" * 1024)
    assert len(await desk.claim(100)) == 100


# the memo: the same claim id again


async def test_a_repeated_claim_gets_the_same_leases_and_changes_nothing(desk):
    await desk.submit("a", "b", "c", payload=b"y" * 2000)
    first = await desk.claim(2, claim_id="same-claim-0123456789ab")
    before = desk.everything()
    assert await desk.claim(2, claim_id="same-claim-0123456789ab") == first
    assert desk.everything() == before


async def test_a_repeated_claim_returns_the_leases_that_are_still_held(desk):
    await desk.submit("a", "b", "c", "d")
    how = {"claim_id": "same-claim-0123456789ab"}
    a, b, c, d = await desk.claim(4, **how)
    await desk.complete(a)
    await desk.release(b)
    end = await desk.heartbeat(c, extend=90)
    assert await desk.claim(4, **how) == [c._replace(expires_ms=end), d]
    assert (await desk.take("b")).token != b.token
    assert ids(await desk.claim(4, **how)) == ["c", "d"]


async def test_a_claim_is_remembered_for_10_s(desk):
    await desk.submit("a", "b")
    how = {"claim_id": "same-claim-0123456789ab"}
    (first,) = await desk.claim(1, **how)
    desk.elapse(9)
    assert ids(await desk.claim(1, **how)) == ["a"]
    desk.elapse(1)
    (second,) = await desk.claim(1, **how)
    assert second.id == "b"
    assert second.token != first.token


async def test_an_empty_claim_is_not_remembered(desk):
    how = {"claim_id": "same-claim-0123456789ab"}
    assert await desk.claim(1, **how) == []
    await desk.submit("a")
    assert ids(await desk.claim(1, **how)) == ["a"]


@pytest.mark.parametrize(("n", "left"), [(1, "mark"), (0, "no mark")])
async def test_a_repeat_that_wants_jobs_flags_the_memo_once(desk, n, left):
    """A repeat with n = 0 precedes a release. It does not change the memo's expiry."""
    await desk.submit("a", "b")
    how = {"claim_id": "same-claim-0123456789ab"}
    first, memo = await desk.claim(2, **how), keys.claim(desk.base, "same-claim-0123456789ab")
    words = desk.raw.get(memo)
    desk.raw.pexpire(memo, 5000)
    for _ in range(3):
        assert await desk.claim(n, **how) == first
        assert desk.raw.get(memo) == words + (" +" if left == "mark" else "")
    assert 0 < desk.raw.pttl(memo) <= 5000


# maintenance by claims and completions


async def test_a_claim_takes_the_jobs_of_a_dead_worker(desk):
    lost = await desk.running("a", worker="dead")
    desk.elapse(30)
    lease = await desk.take("a", worker="alive")
    assert (lease.attempt, lease.recovered) == (2, "lease_expired")
    assert lease.token != lost.token
    assert desk.raw.hget(desk.base, "maintenance").endswith(" alive")


async def test_a_claim_names_the_jobs_that_it_made_dead(desk):
    await desk.submit("a", "b", rules="tries=1")
    await desk.submit("c")
    await desk.claim(3, lease=10)
    desk.elapse(11)
    claimed = await desk.ask()
    assert sorted(claimed.dead) == [("a", 1, "q", "t", "lease_expired"), ("b", 1, "q", "t", "lease_expired")]
    assert ([lease.id for lease in claimed.leases], claimed.come) == (["c"], False)
    assert (await desk.ask()).dead == ()


async def test_a_claim_says_which_of_them_has_timed_out(desk):
    lease = await desk.running("a", rules="tries=1 timeout=20000", lease=60)
    desk.elapse(21)
    await desk.heartbeat(lease)
    desk.elapse(5)
    assert (await desk.ask()).dead == (("a", 1, "q", "t", "timed_out"),)


async def test_a_claim_leaves_live_leases_unchanged(desk):
    await desk.running("a")
    desk.elapse(29)
    assert await desk.claim() == []
    assert desk.state("a") == "running"


async def test_a_claim_moves_at_most_ten_jobs_and_half_as_many_as_it_takes(desk):
    await desk.submit(*(f"j{i:02}" for i in range(40)), rules="delay=1000")
    desk.elapse(1)
    assert await desk.claim(0) == []
    assert len(desk.members("scheduled")) == 30
    assert len(await desk.claim(7)) == 7
    assert len(desk.members("scheduled")) == 30 - 13


async def test_a_claim_of_zero_jobs_does_maintenance_and_leaves_a_wake_up(desk):
    await desk.submit("a", rules="delay=1000")
    desk.raw.delete(keys.wake(desk.base, "q"))
    desk.elapse(1)
    assert await desk.claim(0, queues=()) == []
    assert desk.state("a") == "queued"
    assert desk.wake_ups() == 1


# the wake-up that a claim leaves


async def test_a_claim_that_leaves_work_wakes_the_next_worker(desk):
    await desk.submit("a", "b", queue="one")
    await desk.submit("c", queue="two")
    await desk.submit("d", queue="three")
    desk.raw.delete(*(keys.wake(desk.base, queue) for queue in ("one", "two", "three")))
    await desk.claim(1, queues=("one", "two"))
    assert [desk.wake_ups(queue) for queue in ("one", "two", "three")] == [1, 1, 0]


async def test_a_claim_that_takes_all_jobs_wakes_no_worker(desk):
    await desk.submit("a", "b")
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.claim(2)
    assert desk.wake_ups() == 0


async def test_several_claims_that_leave_work_leave_one_wake_up(desk):
    await desk.submit("a", "b", "c")
    await desk.claim(1)
    await desk.claim(1)
    assert desk.wake_ups() == 1


async def test_a_claim_of_zero_jobs_wakes_no_worker_for_queued_jobs(desk):
    await desk.submit("a")
    desk.raw.delete(keys.wake(desk.base, "q"))
    await desk.claim(0)
    assert desk.wake_ups() == 0


async def test_an_empty_claim_writes_nothing(desk):
    await desk.submit("a", rules="delay=60000")
    await desk.running("b")
    before = desk.everything()
    assert (await desk.ask(5)) == ([], 2.0, False, ())
    assert desk.everything() == before


# the store


async def test_each_claim_of_a_store_has_its_own_claim_id(desk, store):
    await desk.submit("a", "b", "c")
    claims = [(await store.claim(worker="w", queues=["q"], n=1, lease=30)).leases for _ in range(3)]
    assert [ids(leases) for leases in claims] == [["a"], ["b"], ["c"]]
    words = [lease.token.partition(".")[2] for (lease,) in claims]
    assert len(set(words)) == 3
    assert all(len(word) >= 22 for word in words)


async def test_a_claim_that_takes_everything_leaves_no_wake_up(desk):
    """This includes the wake-ups of its own maintenance and of a submit: they would wake a worker for nothing."""
    await desk.submit("due", rules="delay=1000")
    await desk.submit("a")
    desk.elapse(1)
    assert desk.wake_ups() == 1
    assert len(await desk.claim(5)) == 2
    assert desk.wake_ups() == 0


async def test_a_job_with_invalid_rules_does_not_block_later_jobs(desk):
    """Submit refuses such rules, but another program may write them."""
    await desk.submit("a", "b")
    job = keys.job(desk.base, "a")
    header, _, payload = desk.raw.hget(job, "spec").partition("\n")
    desk.raw.hset(job, "spec", f"{header} tries=nan\n{payload}")
    assert ids(await desk.claim(2)) == ["a", "b"]
