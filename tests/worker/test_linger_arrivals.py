"""Summoned workers, and jobs that a worker leaves. In this process, over Redis and over HTTP."""

import asyncio

import pytest

from sublet import Client, State
from sublet.operations import pools
from sublet.scaling.invokers import Invocation
from sublet.store.http import HttpSource
from sublet.worker import heartbeat
from sublet_functions.work import work
from tests.support.http_server import serving
from tests.support.recording_invoker import SECONDS, Recorder, app, crew, ended, gated, quick, until

pytest_plugins = ["tests.support.job_sources", "tests.support.pool_workers"]
ONE_BACKEND = True


# it was summoned


async def test_the_arrival_of_a_worker_ends_its_summons(store, start_worker, put, raw, base):
    await put(min=1)
    found = await store.follow(pools.ask(store.operations.bases, "p", ["q"], summons="s" * 22, n=5))
    assert found.given == 1
    worker, _, watched = start_worker(summons="s" * 22 + ".1")
    await until(lambda: watched.count("claim") > 0)
    (pool,) = await store.follow(pools.look_at_all(store.operations.bases))
    assert (crew(raw, base), pool.arrived, pool.sum.summoned, pool.sum.owed) == ([worker.name], 1, 0, 0)


async def test_an_unwanted_worker_claims_nothing_and_leaves(store, start_worker, put):
    await put()
    await store.submit([quick.job()])
    events = []
    _, running, watched = start_worker(
        summons="s" * 22 + ".1", report=lambda event, lease, words: events.append((event, words))
    )
    assert (await ended(running)).completed == 0
    assert watched.count("claim") == 0
    assert events[0] == (
        "unwanted",
        "not needed: pool p wants no more workers, has other queues, or is gone",
    )


async def test_the_workers_of_a_removed_pool_finish_and_leave(store, start_worker, put, gate, monkeypatch):
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.0)
    await put(min=2)
    await store.follow(pools.ask(store.operations.bases, "p", ["q"], summons="s" * 22, n=5))
    await store.submit([gated.job()])
    events = []
    both = [
        start_worker(
            600.0,
            summons=f"{'s' * 22}.{n}",
            lease=0.6,
            report=lambda event, lease, words: events.append(event),
        )
        for n in (1, 2)
    ]
    await until(gate["started"].is_set)
    await store.follow(pools.remove(store.operations.bases, "p"))
    await until(lambda: events.count("draining") == 2)
    await until(lambda: not any(watched.open["claim"] for _, _, watched in both))
    (left,) = await store.submit([quick.job()])
    await until(lambda: any(running.done() for _, running, _ in both))
    gate["open"].set()
    assert sum([(await ended(running)).completed for _, running, _ in both]) == 1
    assert (await Client(store=store).get(left.id)).state is State.QUEUED


# jobs that it leaves


@pytest.mark.parametrize(("how", "summoned"), [({"max_jobs": 1}, 1), ({"drain": True, "pool": "p"}, 0)])
async def test_a_worker_summons_others_for_the_jobs_it_leaves(store, put, how, summoned):
    await put(invoker="http", target="https://workers.example.com/", wait=600.0)
    await store.submit([quick.job(n) for n in range(3)])
    invoker = Recorder()
    async with asyncio.timeout(SECONDS):
        summary = await work(app, store, queues=["q"], invokers={"http": invoker}, **how)
    assert (summary.dismissed, len(invoker.summons), invoker.closed) == (not summoned, summoned, True)


async def test_over_http_the_server_summons_for_the_jobs_a_worker_leaves(place, store, put, monkeypatch):
    invoker = Recorder()
    monkeypatch.setattr("sublet_functions.serve.invokers_of", lambda: {"http": invoker})
    await put(invoker="http", target="https://workers.example.com/", wait=600.0)
    await store.submit([quick.job(n) for n in range(3)])
    async with serving(place.settings) as url:
        source = HttpSource(url)
        await work(app, source, queues=["q"], max_jobs=1)
        await source.aclose()
        await until(lambda: invoker.requests)
    assert isinstance(invoker.requests[0], Invocation)
    assert invoker.closed
