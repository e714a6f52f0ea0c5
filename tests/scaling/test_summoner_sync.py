"""Summoning for code without an event loop, and by configured clients."""

import asyncio
import os
import signal
import threading
import warnings
from dataclasses import replace

from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.options import Options
from sublet.scaling.invokers import invokers_of
from sublet.scaling.summoner import Summoned
from sublet.scaling.sync_summoner import SyncSummoner, summon_once, uninvoked
from tests.support.recording_invoker import HOST

pytest_plugins = ["tests.support.job_sources", "tests.support.pool_fixtures"]
ONE_BACKEND = True


async def test_an_event_loop_is_started_only_if_a_worker_is_owed(place, have_pool, made, monkeypatch):
    def once():
        return summon_once(place.settings, made)

    loops, run = [], asyncio.run
    monkeypatch.setattr(asyncio, "run", lambda main: loops.append(1) or run(main))
    assert await asyncio.to_thread(once) == Summoned()
    await have_pool(min=2)
    assert await asyncio.to_thread(once) == Summoned(1, 2, 0)
    assert await asyncio.to_thread(once) == Summoned(1, 0, 0)
    assert len(loops) == 1
    assert [len(each.summons) for each in made.made] == [0, 2, 0]


async def test_owed_workers_without_an_invoker_here_are_found(place, have_pool, look):
    def found():
        with SyncClient(place.settings) as client:
            return [
                pool.text
                for pool in uninvoked(place.settings, client.store.transport, lambda: invokers_of({}))
            ]

    await have_pool()
    assert await asyncio.to_thread(found) == []
    for invoker, why in (
        ("http", "SUBLET_SIGNING_SECRETS is not set"),
        ("lambda", "AWS_REGION is not set"),
        ("process", "only `sublet tick --app "),
    ):
        await have_pool(min=2, invoker=invoker, target={"http": HOST, "lambda": "resize"}.get(invoker, ""))
        (words,) = await asyncio.to_thread(found)
        assert words.startswith(f"pool p: 2 workers owed, not invoked from here: {why}")
        assert (await look()).sum.summoned == 0
    await have_pool(min=2, invoker="none", target="")
    assert await asyncio.to_thread(found) == []


async def test_a_sync_client_summons_if_configured(place, have_pool, made, monkeypatch):
    monkeypatch.setattr(SyncSummoner.__init__, "__defaults__", (made,))
    await have_pool()

    def submit(settings):
        with SyncClient(settings) as client:
            return client.submit("t", {}, Options(queue="q")).created

    assert await asyncio.to_thread(submit, place.settings)
    assert made.made == []
    assert await asyncio.to_thread(submit, replace(place.settings, summon=True))
    assert [len(each.summons) for each in made.made] == [2]
    assert not [thread for thread in threading.enumerate() if thread.name == "sublet-summons"]


async def test_an_async_client_summons_if_configured(place, have_pool, made, monkeypatch):
    monkeypatch.setattr("sublet.scaling.summoner.invokers_of", made)
    await have_pool()
    async with Client(replace(place.settings, summon=True)) as client:
        await client.submit("t", {}, Options(queue="q"))
    assert [len(each.summons) for each in made.made] == [1]


async def test_a_sync_submit_does_not_fail_if_redis_is_away_afterwards(place, made, caplog):
    away = replace(place.settings, redis_url="redis://127.0.0.1:1", timeout=0.2, patience=0.1)
    pool_summoner = SyncSummoner(away, made)
    pool_summoner.nudge(["q"])
    await asyncio.to_thread(pool_summoner.close)
    assert "cannot read the list of pools" in caplog.text
    pool_summoner.nudge(["q"])
    await asyncio.to_thread(pool_summoner.close)


async def test_without_a_new_thread_a_submit_succeeds_and_a_later_one_summons(
    place, have_pool, made, monkeypatch, caplog
):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    await have_pool()
    pool_summoner = SyncSummoner(place.settings, made)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            pool_summoner.nudge(["q"])
        pool_summoner.close()
    assert [record.message for record in caplog.records] == ["cannot summon workers: can't start new thread"]
    pool_summoner.nudge(["other"])
    await asyncio.to_thread(pool_summoner.close)
    assert len(made.made) == 1


def test_a_forked_process_summons_by_itself(place):
    """The parent's thread does not exist in it, and may have held the lock."""
    gate, (read_end, write_end) = threading.Event(), os.pipe()
    parent = os.getpid()

    def invokers():
        if os.getpid() == parent:
            gate.wait(30)
        else:
            os.write(write_end, b"summoning")
        return {}

    pool_summoner = SyncSummoner(place.settings, invokers)
    pool_summoner.nudge(["q"])
    with pool_summoner._lock, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python ≥ 3.12 warns of forks in threaded processes, which this test is about
        pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            pool_summoner.nudge(["q"])
            pool_summoner.close()
        finally:
            os._exit(0)
    try:
        os.waitpid(pid, 0)
        os.close(write_end)
        assert os.read(read_end, 100) == b"summoning"
    finally:
        gate.set()
        pool_summoner.close()
        os.close(read_end)
