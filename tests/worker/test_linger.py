"""Workers that linger, and leave when their pool can spare them. In this process, over Redis and over HTTP."""

import asyncio

import pytest

from sublet import Client, State
from sublet.errors import Unavailable
from sublet.model import Claimed
from sublet.operations import pools
from sublet.store.outage_log import OutageLog
from sublet.worker import heartbeat
from sublet.worker.capacity import Capacity, QueueSet, QueueTurns
from sublet.worker.claim_loop import ClaimConfig, ClaimLoops
from sublet.worker.linger import Linger
from sublet.worker.registration import Registration
from sublet.worker.state import WorkerState
from sublet.worker.time_limits.time_budget import TimeBudget
from tests.support.recording_invoker import Watched, crew, ended, gated, plain, quick, until

pytest_plugins = ["tests.support.job_sources", "tests.support.pool_workers"]
ONE_BACKEND = True
OVER_REDIS = pytest.mark.parametrize("over", ["redis"])
"""For tests that do not depend on the source."""


# it lingers


async def test_a_lingering_worker_takes_new_jobs_and_leaves_without_any(store, start_worker):
    _, running, watched = start_worker(linger=0.5, pool="")
    await until(lambda: any(name == "claim" and how["wait"] for name, how in watched.calls))
    await store.submit([quick.job()])
    summary = await ended(running)
    assert (summary.completed, summary.dismissed) == (1, True)
    assert watched.count("retire") == 0, "without a pool it does not ask"


async def test_while_it_lingers_it_waits_and_does_not_poll(store, start_worker):
    worker, running, watched = start_worker(linger=600.0, pool="")
    for n in range(1, 4):
        await store.submit([quick.job()])
        await until(lambda n=n: worker.summary.completed == n)
    before = watched.count("claim")
    await asyncio.sleep(0.5)
    assert watched.count("claim") - before <= 4, "one claim per loop, one of them waiting, and maintenance"
    assert not running.done()


async def test_a_worker_without_a_linger_leaves_at_once(store, start_worker):
    await store.submit([quick.job() for _ in range(20)])
    _, running, watched = start_worker(linger=0.0, pool="")
    assert (await ended(running)).completed == 20
    assert all(not how["wait"] for name, how in watched.calls if name == "claim")


async def test_a_lingering_worker_with_a_running_job_stays_and_claims_more(store, start_worker, gate):
    await store.submit([gated.job()])
    worker, running, _ = start_worker(linger=0.05, pool="")
    await until(gate["started"].is_set)
    await store.submit([quick.job()])
    await until(lambda: worker.summary.completed == 1)
    assert not running.done()
    gate["open"].set()
    assert (await ended(running)).completed == 2


async def test_a_worker_with_both_kinds_of_queues_lingers_for_both(store, start_worker):
    worker, running, watched = start_worker(linger=0.5, pool="", queues=["q", "plain"], processes=1)
    await until(lambda: any(name == "claim" and how["wait"] for name, how in watched.calls))
    await store.submit([plain.job()])
    await until(lambda: worker.summary.completed == 1)
    await store.submit([quick.job()])
    assert (await ended(running)).completed == 2


# its pool can spare it, or cannot


async def test_two_idle_workers_that_ask_at_the_same_moment_do_not_both_leave(
    store, start_worker, put, raw, base
):
    await put(min=1)
    both = [start_worker(), start_worker()]
    await until(lambda: any(running.done() for _, running, _ in both))
    ((stays, running, watched),) = [each for each in both if not each[1].done()]
    asked = watched.count("retire")
    await until(lambda: watched.count("retire") > asked)
    assert (running.done(), crew(raw, base)) == (False, [stays.name])
    await put(min=0)
    assert (await ended(running)).dismissed
    assert crew(raw, base) == []


async def test_the_minimum_of_the_pool_stays(store, start_worker, put, raw, base):
    await put(min=2)
    three = [start_worker() for _ in range(3)]
    await until(lambda: any(running.done() for _, running, _ in three))
    left = [each for each in three if not each[1].done()]
    before = [watched.count("retire") for _, _, watched in left]
    await until(
        lambda: all(watched.count("retire") > n for (_, _, watched), n in zip(left, before, strict=True))
    )
    assert len(left) == 2
    assert sorted(crew(raw, base)) == sorted(worker.name for worker, _, _ in left)


async def test_a_worker_that_must_stay_still_works(store, start_worker, put):
    await put(min=1)
    worker, running, watched = start_worker()
    await until(lambda: watched.count("retire") > 0)
    await store.submit([quick.job()])
    await until(lambda: worker.summary.completed == 1)
    assert not running.done()


@OVER_REDIS
async def test_a_worker_that_may_leave_claims_no_job(store, start_worker, put, raw, base):
    """A job that arrives at this moment is for another worker, which the pool is owed."""
    await put()
    left = []

    async def something_comes(may_go):
        if may_go:
            left.extend(await store.submit([quick.job()]))
            watched.calls.append(("left", {}))
        return may_go

    _, running, watched = start_worker(queues=["q", "plain"], processes=1)
    watched.retired = something_comes
    summary = await ended(running)
    after = watched.calls[watched.calls.index(("left", {})) :]
    assert [how for name, how in after if name == "claim" and how["n"]] == []
    assert (summary.dismissed, summary.completed) == (True, 0)
    assert (await Client(store=store).get(left[0].id)).state is State.QUEUED
    (pool,) = await store.follow(pools.look_at_all(store.operations.bases))
    assert (pool.sum.crew, pool.sum.owed) == (0, 1)


async def test_a_heartbeat_does_not_count_a_worker_that_may_leave(store, put, raw, base):
    """A renewal during the request is sent after the answer, without the pool."""
    await put()
    asked, answer = asyncio.Event(), asyncio.Event()
    watched = Watched(store)

    async def hold(may_go):
        asked.set()
        await answer.wait()
        return may_go

    watched.retired = hold
    register = Registration(watched, "w", dict, named=False, pool="p")
    await register.enlist()
    assert crew(raw, base) == ["w"]
    leaving = asyncio.create_task(register.retire())
    await asked.wait()
    seen = asyncio.create_task(register.renew())
    await asyncio.sleep(0.05)  # it must not be sent
    answer.set()
    assert (await leaving, await seen, watched.count("enlist")) == (True, False, 2)
    assert crew(raw, base) == []


@OVER_REDIS
async def test_a_worker_stays_while_the_server_does_not_answer(store, start_worker, put, caplog):
    await put()
    failures = [Unavailable("no answer")] * 2

    async def fail(may_go):
        if failures:
            raise failures.pop()
        return True

    _, running, watched = start_worker()
    watched.retired = fail
    assert (await ended(running)).dismissed
    assert watched.count("retire") == 3
    assert "cannot ask whether to leave: no answer" in caplog.text


@OVER_REDIS
async def test_a_drained_worker_does_not_count_while_it_finishes(
    store, start_worker, put, gate, raw, base, monkeypatch
):
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.0)
    await put()
    await store.submit([gated.job()])
    worker, running, watched = start_worker(lease=0.3)
    await until(gate["started"].is_set)
    worker.drain()
    asked = watched.count("enlist")
    await until(lambda: watched.count("enlist") > asked)
    cards = [how["args"][0] for name, how in watched.calls if name == "enlist"]
    assert (cards[0].pool, cards[-1].pool, running.done()) == ("p", "", False)
    await until(lambda: crew(raw, base) == [])
    gate["open"].set()
    assert (await ended(running)).completed == 1


def claim_loops(seconds, may_leave, claims, attempts=0):
    """The linger and the claim loops of a worker without jobs; each claim is appended to `claims`."""

    class Source:
        async def claim(self, **how):
            claims.append(how)
            return Claimed([], 2.0)

    state = WorkerState(Capacity(1, 1), TimeBudget(None, 8.0, {}))
    state.attempts.update(object() for _ in range(attempts))
    config = ClaimConfig("w", ["q"], [QueueSet(["q"], may_need_child=False)], QueueTurns(["q"]), 30.0)
    linger = Linger(seconds, may_leave, state.outage)
    return linger, ClaimLoops(Source(), config, state, lambda lease: None, linger)


@pytest.mark.parametrize("dismissed", [True, False])
async def test_no_claim_starts_while_the_worker_asks_to_leave(dismissed):
    """Two loops claim: the other one must not claim between the question and the answer."""
    asked, answer, claims = asyncio.Event(), asyncio.Event(), []

    async def may_leave():
        asked.set()
        await answer.wait()
        return dismissed

    linger, loops = claim_loops(0.0, may_leave, claims)
    asking = asyncio.create_task(loops._wait_or_leave(linger))
    await asked.wait()
    other = asyncio.create_task(loops._claim(["q"], 1, False, 0))
    await asyncio.sleep(0.05)  # it must not be sent
    assert claims == []
    answer.set()
    assert (await asking, await other, len(claims)) == (True, 0, 0 if dismissed else 1)
    loops.stop()


@pytest.mark.parametrize(
    ("seconds", "ago", "unfinished", "least", "most"),
    [
        (5.0, 0.0, 0, 4.5, 5.0),
        (5.0, 3.0, 0, 1.5, 2.0),
        (600.0, 0.0, 0, 10, 10),
        (5.0, 9.0, 1, 5, 5),
        (0.1, 0.0, 1, 1, 1),
    ],
)
async def test_a_claim_waits_for_the_rest_of_the_linger(seconds, ago, unfinished, least, most):
    claims = []
    linger, loops = claim_loops(seconds, None, claims, unfinished)
    linger.since -= ago
    assert await loops._wait_or_leave(linger)
    assert [least <= claim["wait"] <= most for claim in claims] == [True]
    loops.stop()


async def test_a_worker_that_must_stay_asks_again_after_another_linger():
    async def may_leave():
        return False

    for seconds in (0.0, 0.4, 5.0):
        linger = Linger(seconds, may_leave, OutageLog())
        linger.since -= seconds
        await linger.ask_to_leave()
        assert max(seconds, 1.0) - 0.5 < linger.left <= max(seconds, 1.0)
