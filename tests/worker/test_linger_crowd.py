"""Workers that a burst has summoned leave when little work is left, although each gets a job now and then."""

import asyncio
import time

import pytest

from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.scaling.invokers.process import ProcessInvoker
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from tests.support import misbehaving_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
POOL = Pool(name="p", queues=("default",), invoker="process", max=3, slots=4, wait=0.5, linger=0.5, arrive=30)


@pytest.fixture
async def called(stage):
    """A pool whose workers are processes, with its client and its summoner."""
    store = Store(stage.settings)
    invoker = ProcessInvoker(
        "tests.support.misbehaving_tasks:app", environment=stage.env, hear=lambda worker, line: None
    )
    summoner = Summoner(store, {"process": invoker})
    await store.prepare()
    await store.follow(pools.put(store.operations.bases, POOL))
    yield store, summoner, invoker
    await summoner.aclose()
    await store.aclose()


async def test_rotating_work_keeps_only_the_needed_workers(called):
    store, summoner, invoker = called

    async def submit(n, seconds):
        await store.submit([tasks.naps.job(seconds) for _ in range(n)])
        summoner.nudge(["default"])

    await submit(60, 0.3)
    deadline, most = time.monotonic() + 60, 0
    while most < POOL.max or len(invoker.processes) != 1:
        assert time.monotonic() < deadline, f"{len(invoker.processes)} workers, where one would do"
        await submit(1, 0.01)
        most = max(most, len(invoker.processes))
        await asyncio.sleep(0.1)
