"""Summoning for code without an event loop, and by clients that are told to."""

import asyncio
import threading
from dataclasses import replace

from jobs.client import Client, SyncClient
from jobs.options import Options
from jobs.summoner import Summoned
from jobs.summons import SyncSummoner, summon_once

pytest_plugins = ["tests.sources", "tests.hiring"]
ONE_BACKEND = True


async def test_a_loop_is_started_only_where_somebody_is_owed(place, have_pool, made, monkeypatch):
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


async def test_a_sync_client_summons_if_it_is_told_to(place, have_pool, made, monkeypatch):
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


async def test_an_async_client_summons_if_it_is_told_to(place, have_pool, made, monkeypatch):
    monkeypatch.setattr("jobs.invokers.invokers_of", made)
    await have_pool()
    async with Client(replace(place.settings, summon=True)) as client:
        await client.submit("t", {}, Options(queue="q"))
    assert [len(each.summons) for each in made.made] == [1]


async def test_a_sync_submit_does_not_fail_for_redis_being_away_by_then(place, made, caplog):
    away = replace(place.settings, redis_url="redis://127.0.0.1:1", timeout=0.2, patience=0.1)
    who = SyncSummoner(away, made)
    who.nudge(["q"])
    await asyncio.to_thread(who.close)
    assert "cannot look which pools need workers" in caplog.text
    who.nudge(["q"])
    await asyncio.to_thread(who.close)
