"""Summoning of workers: after a submit, in a tick, at the end of a worker. Invokers are fakes, Redis is real."""

import asyncio
from dataclasses import replace

import pytest

from sublet.model import Card
from sublet.operations import pools
from sublet.protocol import keys
from sublet.scaling import summoner
from sublet.scaling.summoner import BATCH, SUMMONS_MAX, Summoned, Summoner
from sublet.scaling.sync_summoner import summon_once
from sublet.store.store import Store
from tests.support.recording_invoker import HOST, POOL, Recorder, jobs

pytest_plugins = ["tests.support.job_sources", "tests.support.pool_fixtures"]
ONE_BACKEND = True


# summonses


async def test_a_submit_invokes_the_workers_that_its_pool_is_owed(store, have_pool, summoner_of):
    await have_pool(slots=2, linger=0.5)
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    await store.submit(jobs(6))
    await pool_summoner.finish()
    (request,) = invoker.requests
    assert len(request.summons) == 3
    assert (request.pool, request.target, request.queues, request.slots, request.linger) == (
        "p",
        HOST,
        ("q",),
        2,
        0.5,
    )
    assert len(set(request.summons)) == 3
    assert all(22 <= len(summons) <= 64 for summons in request.summons)
    await store.submit(jobs(1))
    await pool_summoner.finish()
    assert len(invoker.summons) == 4, "summoned workers are not summoned again"


async def test_excluded_pools_are_not_checked(store, have_pool, look):
    await have_pool(min=2)
    pool_summoner = Summoner(store, {"http": Recorder()}, lambda pool: pool.name != "p")
    assert await pool_summoner.summon() == Summoned()
    pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    await pool_summoner.aclose()
    assert (await look()).sum.owed == 2


async def test_fifty_submitters_at_once_summon_no_more_than_is_owed(place, have_pool, look):
    await have_pool(max=7)
    invoker = Recorder()

    async def submitter():
        own = Store(place.settings)
        pool_summoner = Summoner(own, {"http": invoker})
        own.nudge = pool_summoner.nudge
        for _ in range(4):
            await own.submit(jobs(1))
        await pool_summoner.aclose()
        await own.aclose()

    async with asyncio.timeout(60):
        await asyncio.gather(*(submitter() for _ in range(50)))
    assert len(invoker.summons) == len(set(invoker.summons)) == 7
    found = (await look()).sum
    assert (found.ready, found.wanted, found.summoned, found.owed) == (200, 7, 7, 0)


async def test_many_workers_are_invoked_a_few_at_a_time(have_pool, summoner_of):
    await have_pool(min=2 * SUMMONS_MAX + 50, max=1000)
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    assert len(set(invoker.summons)) == 2 * SUMMONS_MAX + 50
    assert max(len(request.summons) for request in invoker.requests) == BATCH


async def test_a_summons_without_a_worker_expires_and_another_is_sent(have_pool, summoner_of):
    await have_pool(min=1, arrive=0.2)
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    async with asyncio.timeout(30):
        while len(invoker.summons) < 2:
            await pool_summoner.summon()
            await asyncio.sleep(0.02)
    assert len(set(invoker.summons)) == 2


async def test_a_worker_without_heartbeats_is_replaced(store, raw, have_pool, summoner_of):
    await have_pool(min=1)
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    await pool_summoner.summon()
    assert not await store.enlist(Card("w", "1", "", b"{}", "p", invoker.summons[0]))
    assert (await pool_summoner.summon()).summoned == 0
    raw.zincrby(keys.crew(store.operations.bases[0], "p"), -12_001, "w")
    assert (await pool_summoner.summon()).summoned == 1


async def test_a_reconciled_worker_is_replaced_at_once(store, have_pool, summoner_of):
    await have_pool(min=1)
    pool_summoner = summoner_of(Recorder())
    await store.enlist(Card("w", "1", "", b"{}", "p"))
    assert (await pool_summoner.summon()).summoned == 0
    await store.reconcile({"w": "1"})
    assert (await pool_summoner.summon()).summoned == 1


async def test_only_pools_with_an_available_invoker_are_checked(store, have_pool, summoner_of, lookups):
    await have_pool(name="a", invoker="none", target="", min=1)
    await have_pool(name="b", invoker="process", target="", min=1)
    invoker = Recorder()
    assert await summoner_of(invoker, Recorder(kind="none")).summon() == Summoned()
    lookups["ask"] = 0
    await store.submit(jobs(1))
    assert (invoker.requests, lookups["ask"]) == ([], 0)
    assert [pool.sum.summoned for pool in await store.follow(pools.look_at_all(store.operations.bases))] == [
        0,
        0,
    ]
    await have_pool(name="c", min=1)
    assert await summoner_of(invoker).summon() == Summoned(1, 1, 0)


@pytest.mark.parametrize("without_a_loop", [False, True])
async def test_a_tick_updates_the_averages_of_pools_without_an_invoker(
    store, place, have_pool, summoner_of, raw, without_a_loop
):
    await have_pool(invoker="none", target="")
    pool_summoner = summoner_of(Recorder())
    for seconds in (0, 2):
        raw.hincrby(keys.pool(store.operations.bases[0], "p"), "at", -1000 * seconds)
        await (
            asyncio.to_thread(summon_once, place.settings, dict) if without_a_loop else pool_summoner.summon()
        )
        await store.submit(jobs(50))
    (found,) = await store.follow(pools.look_at_all(store.operations.bases))
    assert (found.sum.rate > 1, found.sum.summoned, found.lost, found.sum.crew) == (True, 0, 0, 0)


async def test_a_changed_pool_is_invoked_with_its_new_settings(have_pool, summoner_of):
    await have_pool()
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    await pool_summoner.summon()
    await have_pool(target=f"{HOST}/new", min=1)
    pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    assert [request.target for request in invoker.requests] == [f"{HOST}/new"]


async def test_the_queues_of_a_pool_may_live_in_other_partitions(place):
    store = Store(replace(place.settings, partitions=4))
    queues = tuple(f"q{n}" for n in range(8))
    assert {store.operations.base_of_queue(queue) for queue in queues} == set(store.operations.bases)
    await store.prepare()
    await store.follow(
        pools.put(store.operations.bases, POOL.model_copy(update={"queues": queues, "slots": 4}))
    )
    invoker = Recorder()
    pool_summoner = Summoner(store, {"http": invoker})
    store.nudge = pool_summoner.nudge
    await store.submit([job._replace(queue=queue) for queue in queues for job in jobs(2)])
    await pool_summoner.aclose()
    (found,) = await store.follow(pools.look_at_all(store.operations.bases))
    assert (found.sum.ready, found.sum.wanted, len(invoker.summons)) == (16, 4, 4)
    await store.aclose()


# how often


async def test_many_nudges_make_one_call_and_the_last_one_counts(have_pool, summoner_of, lookups):
    await have_pool()
    pool_summoner = summoner_of(Recorder())
    for _ in range(100):
        pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    assert lookups == {"known": 1, "ask": 1}
    pool_summoner.nudge(["q"])
    await asyncio.sleep(0)  # the call is in progress
    for _ in range(100):
        pool_summoner.nudge(["q"])
    await pool_summoner.finish()
    assert lookups == {"known": 1, "ask": 3}


async def test_without_pools_only_the_list_is_read_at_intervals(store, summoner_of, lookups, monkeypatch):
    monkeypatch.setattr(summoner, "KNOWN", 600.0)
    pool_summoner = summoner_of(Recorder())
    for _ in range(20):
        await store.submit(jobs(1))
    assert lookups == {"known": 1, "ask": 0}
    await pool_summoner.aclose()
    assert lookups == {"known": 2, "ask": 0}


async def test_a_new_pool_is_found_by_the_next_check(store, have_pool, summoner_of, monkeypatch):
    monkeypatch.setattr(summoner, "KNOWN", 0.3)
    invoker = Recorder()
    pool_summoner = summoner_of(invoker)
    await store.submit(jobs(1))
    await pool_summoner.finish()
    await have_pool()
    await store.submit(jobs(1))  # the last one for a long time
    await pool_summoner.finish()
    assert len(invoker.requests) == 1


async def test_without_invokers_redis_is_not_read(store, have_pool, lookups):
    await have_pool(min=1)
    pool_summoner = Summoner(store, {"none": Recorder(kind="none")})
    pool_summoner.nudge(["q"])
    await pool_summoner.aclose()
    assert lookups == {"known": 0, "ask": 0}
