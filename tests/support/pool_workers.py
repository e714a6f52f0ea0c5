"""A pool with workers in this process: a plugin for tests of how workers arrive, linger and leave."""

import asyncio

import pytest

from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.recording_invoker import GATE, SECONDS, Watched, app


@pytest.fixture
def put(store):
    """Configure the pool."""

    async def put(**how):
        usual = Pool(name="p", queues=("q",), linger=0.0, max=5)
        await store.follow(pools.put(store.operations.bases, usual.model_copy(update=how)))

    return put


@pytest.fixture
async def start_worker(source):
    """Run a draining worker beside the test; it is stopped at the end."""
    hired = []

    def start(linger=0.1, pool="p", source=source, report=lambda *_: None, **how):
        watched = Watched(source)
        config = WorkerConfig(**{"slots": 4, "grace": 0.0, "queues": ["q"], "pool": pool, **how})
        worker = Worker(app, watched, config, report)
        running = asyncio.create_task(worker.run(drain=True, linger=linger))
        hired.append((worker, running))
        return worker, running, watched

    yield start
    for worker, running in hired:
        worker.stop()
        async with asyncio.timeout(SECONDS):
            await running


@pytest.fixture(autouse=True)
def gate():
    GATE.update(started=asyncio.Event(), open=asyncio.Event())
    return GATE
