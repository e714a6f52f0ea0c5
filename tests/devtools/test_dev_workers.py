"""The workers of `sublet dev`: a reload replaces them."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime

import pytest

from sublet.devtools.platform.reports import Reporter
from sublet.devtools.platform.worker_monitor import WorkerMonitor
from sublet.model import Card
from sublet.scaling.invokers.process import Spawned
from sublet.worker import host_identity
from tests.support.recording_invoker import Recorder

pytest_plugins = ["tests.support.job_sources", "tests.support.pool_fixtures"]
ONE_BACKEND = True


@pytest.mark.parametrize("registered", [False, True])
async def test_a_worker_that_a_reload_ends_is_owed_again_at_once(
    store, have_pool, summoner_of, registered: bool
):
    await have_pool(min=1)
    invoker = Recorder()
    summoner = summoner_of(invoker)
    await summoner.summon()
    process = await asyncio.create_subprocess_exec("sleep", "600")
    one = Spawned(process.pid, "p", invoker.summons[0], datetime.now(UTC))
    monitor = WorkerMonitor(store, Reporter(lambda event: None), 15.0, lambda: [one], lambda: None)
    if registered:
        about = host_identity.identity() | {"pid": process.pid}
        await store.enlist(Card("w", "1", "", json.dumps(about).encode(), "p", one.summons))
    assert (await summoner.summon()).summoned == 0
    try:
        assert await monitor.retire() == {process.pid}
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert await store.workers() == []
    assert (await summoner.summon()).summoned == 1
