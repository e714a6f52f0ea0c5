"""Claims of a worker: neither kind of task waits for the other, and the slots are never exceeded."""

import asyncio
import threading
from datetime import timedelta

import pytest

from sublet import App, Client, Options
from sublet.connection.settings import Settings
from sublet.worker import claim_loop
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

NOW: set[int] = set()
MOST = [0]

app = App(settings=Settings())


@app.task(queue="plain")
def short(number: int) -> int:
    return number


@app.task(queue="plain")
def naps(seconds: float) -> None:
    threading.Event().wait(seconds)


@app.task(queue="loop")
async def counted(number: int) -> int:
    NOW.add(number)
    MOST[0] = max(MOST[0], len(NOW))
    await asyncio.sleep(0.01)
    NOW.discard(number)
    return number


@app.task(queue="plain", name="stray")
async def stray(number: int) -> int:
    return await counted.function(number)


PAIR: list[asyncio.Barrier] = []


@app.task(queue="plain")
async def meets() -> None:
    await PAIR[0].wait()


@pytest.fixture
async def hire(store):
    hired = []

    async def start(**how):
        worker = Worker(app, store, WorkerConfig(grace=0.0, lease=60, **{"queues": ["plain", "loop"], **how}))
        hired.append((worker, asyncio.create_task(worker.run())))
        return worker

    yield start
    for worker, run in hired:
        worker.stop()
        await run


@pytest.mark.parametrize(("slots", "busy"), [(1, 0), (2, 1), (3, 1)])
async def test_a_waiting_claim_blocks_no_slot_of_another(store, hire, slots, busy):
    client = Client(store=store)
    await hire(slots=slots, processes=2)
    await store.submit([naps.job(600.0) for _ in range(busy)])
    async with asyncio.timeout(60):
        while busy and not [job for job in (await client.list_jobs()).jobs if job.state == "running"]:
            await asyncio.sleep(0.01)
    for task in (counted, short) if slots > busy else (counted,):
        (job,) = await store.submit([task.job(7)])
        assert await client.result(job.id, 30) == 7


async def test_plain_functions_are_claimed_as_soon_as_a_child_is_free(store, hire, monkeypatch):
    """While every child is busy, a claim waits for async tasks only; it is replaced by one that waits for
    both.
    """
    monkeypatch.setattr(claim_loop, "IDLE", 600.0)
    client = Client(store=store)
    worker = await hire(slots=4, processes=1)
    (napping,) = await store.submit([naps.job(1.0)])
    async with asyncio.timeout(30):
        while not (
            worker._capacity.running_in_children
            and worker._capacity.reserved
            and not worker._capacity.reserved_children
        ):
            await asyncio.sleep(0.01)
    assert await client.result(napping.id, 30) is None
    (later,) = await store.submit([short.job(1)])
    assert await client.result(later.id, 30) == 1


async def test_plain_jobs_that_run_ahead_do_not_raise_the_number_of_async_tasks(store, hire):
    NOW.clear()
    MOST[0] = 0
    await store.submit([short.job(i) for i in range(300)] + [stray.job(i) for i in range(60)])
    await store.submit([counted.job(100 + i) for i in range(60)])
    async with asyncio.timeout(60):
        summary = await Worker(
            app, store, WorkerConfig(queues=["plain", "loop"], slots=2, processes=2, lease=60)
        ).run(drain=True)
    assert summary.completed == 420
    assert MOST[0] <= 2


async def test_a_worker_runs_exactly_max_jobs(store):
    await store.submit([short.job(i) for i in range(50)] + [counted.job(i) for i in range(50)])
    async with asyncio.timeout(60):
        summary = await Worker(
            app, store, WorkerConfig(queues=["plain", "loop"], slots=20, processes=2, lease=60)
        ).run(max_jobs=37)
    assert summary.completed == 37


@pytest.mark.parametrize("slots", [1, 20])
async def test_jobs_that_the_worker_cannot_run_do_not_count_and_wait_before_they_come_back(store, slots):
    client = Client(store=store)
    ahead = Options(queue="loop", priority=9)
    strange = [await client.submit("unheard_of", {}, ahead) for _ in range(3)]
    strange += [await client.submit("counted", {"no": n}, ahead) for n in range(2)]
    await store.submit([counted.job(i) for i in range(5)])
    async with asyncio.timeout(60):
        summary = await Worker(app, store, WorkerConfig(queues=["loop"], slots=slots, lease=60)).run(
            max_jobs=3
        )
    assert (summary.completed, summary.released) == (3, 5)
    for handle in strange:
        job = await client.get(handle.id)
        assert (job.state, job.attempt, job.last_error.code) == ("scheduled", 1, "unknown_task")
        assert job.due_at - job.attempts[0].ended_at >= timedelta(seconds=1)


async def test_the_place_of_a_job_that_does_not_count_is_used_while_others_run(store):
    """The child finds unfit arguments when all loops have ended their claims."""
    PAIR[:] = [asyncio.Barrier(2)]
    await store.submit([meets.options(priority=9).job()])
    await Client(store=store).submit("short", {"no": 1}, Options(queue="plain", priority=8))
    await store.submit([meets.job()])
    config = WorkerConfig(queues=["plain"], slots=4, processes=1, lease=60)
    async with asyncio.timeout(20):
        summary = await Worker(app, store, config).run(max_jobs=2)
    assert (summary.completed, summary.released) == (2, 1)
