"""Summoned workers as real processes: one is killed, another is summoned for its jobs, and all leave in the end."""

import asyncio
import os
import signal

import pytest

from sublet import Client, State
from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.protocol import keys
from sublet.scaling.invokers.process import ProcessInvoker
from sublet.scaling.summoner import Summoner
from tests.support import tasks
from tests.support.processes import is_alive, on_linux, plain_environment

pytest_plugins = ["tests.support.job_sources"]
ONE_BACKEND = True
SECONDS = 60.0


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
    return found


@pytest.fixture
async def invoker(place):
    """Starts real workers of the tests' tasks."""
    where = {"SUBLET_REDIS_URL": place.settings.redis_url, "SUBLET_NAMESPACE": place.settings.namespace}
    env = plain_environment()
    invoker = ProcessInvoker("tests.support.tasks:app", environment=env | where)
    yield invoker
    await invoker.aclose()


@on_linux
async def test_a_killed_worker_is_replaced_and_all_leave_after_the_last_job(store, raw, base, invoker):
    client, summoner = Client(store=store), Summoner(store, {"process": invoker})
    store.nudge = summoner.nudge
    pool = Pool(name="p", queues=("default",), invoker="process", max=1, slots=2, linger=0.2)
    await store.follow(pools.put(store.operations.bases, pool))
    (held,) = await store.submit([tasks.waits_until_cancelled.job()])

    async def running():
        return (await client.get(held.id)).state is State.RUNNING

    await until(running)
    (killed,) = invoker.processes
    os.kill(killed.pid, signal.SIGKILL)
    assert (await summoner.summon()).summoned == 0, "its end is not detected yet"
    (name,) = raw.zrange(keys.crew(base, "p"), 0, -1)
    for key, of in ((keys.crew(base, "p"), name), (keys.structure(base, "running"), held.id)):
        raw.zincrby(key, -60_000, of)  # a minute later
    assert (await store.follow(store.operations.reap("tick"))).ended == 1
    assert (await summoner.summon()).summoned == 1

    async def taken_over():
        job = await client.get(held.id)
        return job.worker not in (None, name) and [attempt.code for attempt in job.attempts] == [
            "lease_expired"
        ]

    await until(taken_over)
    assert await client.cancel(held.id) == "requested"

    async def all_gone():
        return not invoker.processes and not raw.zrange(keys.crew(base, "p"), 0, -1)

    await until(all_gone)
    found = await store.follow(pools.get(store.operations.bases, "p"))
    assert (found.summoned, found.arrived, found.failures) == (2, 2, 0)
    assert not is_alive(killed.pid)
    await summoner.aclose()
