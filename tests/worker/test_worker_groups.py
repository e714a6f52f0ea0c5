"""Workers keep to the limits of groups, report what jobs cost, and wait for tokens."""

import asyncio
import itertools
import time

import pytest

from sublet import App
from sublet.client.client import Client
from sublet.protocol import keys
from sublet.worker.worker import Worker, WorkerConfig
from tests.support import group_tasks

pytest_plugins = ["tests.support.job_sources"]


@pytest.mark.real_server
@pytest.mark.parametrize("over", ["redis", "http"])
@pytest.mark.parametrize("name", ["on_loop", "in_thread", "in_process"])
async def test_jobs_of_a_group_run_two_at_a_time_and_their_real_costs_are_charged(store, source, raw, name):
    client, task = Client(store=store), group_tasks.app.tasks[name]
    await client.configure("llm", group_concurrency=2, group_rate=1000, group_per=1000, group_burst=9999)
    jobs = [task.job(i, "acme") for i in range(6)]
    await client.submit_all(jobs)
    worker = Worker(group_tasks.app, source, WorkerConfig(queues=["llm"], slots=6, processes=4, name="w"))
    summary = await asyncio.wait_for(worker.run(max_jobs=6), 20)
    assert summary.completed == 6
    spans = [(await client.get(job.id)).result for job in jobs]
    events = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    assert max(itertools.accumulate(change for _, change in events)) == 2
    full_at = float(raw.get(keys.bucket(store.operations.bases[0], "llm|acme")))
    assert 550 < full_at / 1000 - time.time() <= 600, "100 tokens of each of 6 jobs, one a second"


@pytest.mark.real_server
@pytest.mark.parametrize("over", ["redis", "http"])
async def test_a_token_that_falls_due_on_an_idle_fleet_starts_a_job_at_once(store, source):
    """Nobody submits or completes anything when the token comes: one of the idle workers claims at that moment."""
    app, started = App(), []

    @app.task(queue="slow", group="g")
    async def tick() -> None:
        started.append(time.time())

    client = Client(store=store)
    await client.configure("slow", group_rate=1, group_per=0.4)
    await client.submit_all([tick.job() for _ in range(4)])
    workers = [Worker(app, source, WorkerConfig(queues=["slow"], slots=2, name=f"w{i}")) for i in range(2)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    async with asyncio.timeout(30):
        while len(started) < 4:
            await asyncio.sleep(0.01)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    gaps = [second - first for first, second in itertools.pairwise(started)]
    assert started[3] - started[0] > 0.9, gaps
    assert max(gaps) < 0.9, f"{gaps}: a poll would take up to 2 s"
