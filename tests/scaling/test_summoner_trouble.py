"""Failures while workers are summoned: none makes a submit wait or fail."""

import asyncio
import logging
from dataclasses import replace

import pytest

from sublet.errors import Unavailable, Unfit
from sublet.operations import pools
from sublet.protocol import keys
from sublet.scaling import summoner
from sublet.scaling.invokers import InvocationFailed
from sublet.scaling.summoner import PoolErrors, Summoned, Summoner
from sublet.scaling.sync_summoner import summon_once
from sublet.store.store import Store
from tests.support.recording_invoker import Recorder, jobs

pytest_plugins = ["tests.support.job_sources", "tests.support.pool_fixtures"]
ONE_BACKEND = True


async def test_a_submit_does_not_wait_for_an_invoker_that_hangs_and_the_failure_is_counted(
    store, have_pool, summoner_of, look, monkeypatch, caplog
):
    monkeypatch.setattr(summoner, "PATIENCE", 0.1)
    await have_pool()
    invoker = Recorder()
    invoker.open.clear()
    pool_summoner = summoner_of(invoker)
    (stored,) = await store.submit(jobs(1))
    assert stored.created
    await pool_summoner.finish()
    found = await look()
    assert (found.failures, found.failure) == (1, "no answer within 0.1 s")
    assert found.sum.summoned == 1, "the invocation may have succeeded: the worker is expected"
    assert (
        "pool p: 1 of its workers could not be invoked (invoker http): no answer within 0.1 s" in caplog.text
    )


def refusing(some=slice(None)):
    def refuse(request):
        raise InvocationFailed("the function answered 500", request.summons[some])

    return refuse


async def test_a_failure_is_counted_for_its_pool_and_logged_once_a_minute(
    have_pool, summoner_of, look, caplog
):
    caplog.set_level(logging.WARNING)
    await have_pool(min=4)
    pool_summoner = summoner_of(Recorder(refusing(slice(2, None))))
    assert await pool_summoner.summon() == Summoned(1, 2, 2)
    assert (await look()).failures == 2
    await have_pool(min=8)
    assert await pool_summoner.summon() == Summoned(1, 2, 2)
    found = await look()
    assert (found.failures, found.failure) == (4, "the function answered 500")
    assert len(caplog.records) == 1


async def test_an_unexpected_error_of_an_invoker_is_counted_without_its_message(
    have_pool, summoner_of, look, caplog
):
    def break_down(request):
        raise RuntimeError("https://workers.example.com/?code=secret")

    await have_pool(min=1)
    assert (await summoner_of(Recorder(break_down)).summon()).failed == 1
    assert (await look()).failure == "the invoker raised RuntimeError"
    assert "secret" not in caplog.text


async def test_a_pool_whose_invoker_changes_at_this_moment_is_logged(store, have_pool, summoner_of, look):
    await have_pool()
    pool_summoner = summoner_of(Recorder())
    await pool_summoner.summon()
    await have_pool(min=1, invoker="lambda", target="resize")
    pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    failure = "the pool was changed to the invoker lambda, which this process lacks"
    assert (await look()).failure.startswith(failure)


async def test_a_pool_that_is_removed_at_this_moment_is_not_an_error(store, have_pool, summoner_of, caplog):
    await have_pool(min=1)
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    await pool_summoner._know()
    await store.follow(pools.remove(store.operations.bases, "p"))
    pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    assert (invoker.requests, caplog.records) == ([], [])


@pytest.mark.parametrize("without_a_loop", [False, True])
async def test_an_invalid_pool_is_reported_and_does_not_stop_the_others(
    place, store, have_pool, summoner_of, raw, made, caplog, without_a_loop
):
    for name in ("a", "p", "z"):
        await have_pool(name=name, min=1)
    for name in ("a", "z"):
        raw.set(keys.crew(store.operations.bases[0], name), "spoiled")
    once = (
        asyncio.to_thread(summon_once, place.settings, made)
        if without_a_loop
        else summoner_of(*made().values()).summon()
    )
    with pytest.raises(Unfit, match="a key of this namespace has a wrong type"):
        await once
    assert [request.pool for each in made.made for request in each.requests] == ["p"]
    assert "pool a: cannot check" in caplog.text
    assert "pool z: cannot check" in caplog.text


def test_while_redis_is_away_no_other_pool_is_checked():
    for error, are_all in ((Unavailable(), True), (Unfit(), False)):
        errors = PoolErrors()
        with errors.catch("p"):
            raise error
        assert errors.stop is are_all
        with pytest.raises(type(error)):
            errors.throw()


async def test_while_redis_is_away_nudges_are_dropped_and_it_is_logged_once(place, summoner_of, caplog):
    caplog.set_level(logging.WARNING)
    away = Store(replace(place.settings, redis_url="redis://127.0.0.1:1", timeout=0.2, patience=0.1))
    pool_summoner = summoner_of(Recorder(), of=away)
    for _ in range(3):
        pool_summoner.nudge(["q"])
        await pool_summoner.finish()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "cannot read the list of pools"
    ]
    with pytest.raises(Unavailable):
        await pool_summoner.summon()
    await pool_summoner.aclose()
    await away.aclose()


async def test_closing_handles_nudges_and_leaves_no_task(store, have_pool):
    await have_pool()
    before = asyncio.all_tasks()
    invoker = Recorder()
    pool_summoner = Summoner(store, {"http": invoker})
    store.nudge = pool_summoner.nudge
    await store.submit(jobs(1))
    await pool_summoner.aclose()
    assert (len(invoker.summons), invoker.closed) == (1, True)
    store.nudge(["q"])
    assert asyncio.all_tasks() == before
    assert len(invoker.summons) == 1


async def test_closing_waits_for_a_limited_time(have_pool, summoner_of, caplog):
    await have_pool(min=1)
    invoker = Recorder()
    invoker.open.clear()
    before = asyncio.all_tasks()
    pool_summoner = summoner_of(invoker)
    pool_summoner.nudge(["q"])
    async with asyncio.timeout(30):
        while not invoker.requests:
            await asyncio.sleep(0.01)
    await pool_summoner.aclose(0.05)
    assert "gave up 1 invocations that did not end" in caplog.text
    assert asyncio.all_tasks() == before
