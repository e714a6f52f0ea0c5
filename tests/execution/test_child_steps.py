"""Steps of plain functions in child processes, with real workers, on Redis and over HTTP."""

import asyncio

from sublet import Client, State
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import step_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.job_sources"]
pytestmark = [on_linux]


async def drain(source, **how):
    async with asyncio.timeout(60):
        return await Worker(tasks.app, source, WorkerConfig(slots=1, processes=1, lease=60)).run(drain=True)


async def until(source, client, job_id, reached):
    """Run workers until the job is as wanted; due jobs need a moment."""
    async with asyncio.timeout(60):
        while not reached(job := await client.get(job_id)):
            await drain(source)
            await asyncio.sleep(0.01)
    return job


def is_waiting(job):
    return job.state is State.SCHEDULED and job.attempts[-1].message.startswith("signal")


def is_done(job):
    return job.state is State.COMPLETED


async def test_a_step_of_a_child_process_survives_its_death(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([tasks.order.job(7, 60_000)])
    job = await until(source, client, submitted.id, is_waiting)
    assert [one.code for one in job.attempts] == ["crashed", "suspended", "suspended"]
    await client.signal(job.id, "approval", {"by": "ada"})
    job = await until(source, client, job.id, is_done)
    assert job.result == [7, True, 60_000, {"by": "ada"}, 1]


async def test_many_large_steps_pass_the_pipes(store):
    (submitted,) = await store.submit([tasks.many.job()])
    job = await until(store, Client(store=store), submitted.id, is_done)
    assert (job.result, job.attempt) == (900_000, 2)


async def test_an_error_of_the_store_reaches_the_task(store):
    (submitted,) = await store.submit([tasks.full.job()])
    await drain(store)
    (ended,) = (await Client(store=store).get(submitted.id)).attempts
    assert (ended.code, "it may have 1000 of 1048576" in ended.message) == ("StepsFull", True)


async def test_threads_of_a_task_keep_steps_at_once(store):
    (submitted,) = await store.submit([tasks.threads.job()])
    await drain(store)
    assert (await Client(store=store).get(submitted.id)).result == [*range(8)]


async def test_a_thread_that_outlives_its_job_keeps_no_step(store):
    client = Client(store=store)
    late, seen = await store.submit([tasks.outlived.job(), tasks.seen_late.job()])
    await drain(store)
    assert (await client.get(late.id)).result == "ended"
    assert (await client.get(seen.id)).result == [
        "LeaseLost: the attempt has ended, and a thread of its task still uses the context: end threads before the task returns",
        "own",
    ]
