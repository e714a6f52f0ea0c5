"""`ctx.call`: another job as a step, with real workers, on Redis and over HTTP."""

import asyncio
from dataclasses import replace

import pytest

from sublet import Client, State
from sublet.large_payloads import Files
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import calling_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.job_sources"]
KINDS = [tasks.on_loop, tasks.in_thread, pytest.param(tasks.in_child, marks=on_linux)]


async def drain(source, queues=("default", "labels"), **how):
    """Run a worker with one slot until nothing can start."""
    config = WorkerConfig(slots=1, processes=1, lease=60, queues=list(queues))
    async with asyncio.timeout(60):
        return await Worker(tasks.app, source, config).run(drain=True, **how)


async def submitted(source, store, job):
    (answer,) = await source.submit([job])
    return Client(store=store), answer.id


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_a_task_gets_the_result_of_a_called_job_and_holds_no_slot_meanwhile(
    source, store, tmp_path, task
):
    client, job_id = await submitted(source, store, task.job(7, str(tmp_path / "done")))
    summary = await drain(source)
    job = await client.get(job_id)
    assert job.result == [1, {"label": 7}]
    assert [one.code for one in job.attempts] == ["suspended", "completed"]
    assert (summary.suspended, summary.completed) == (1, 2)


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_a_failure_of_the_called_job_is_raised_in_each_attempt_until_it_is_retried(
    source, store, tmp_path, task
):
    client, job_id = await submitted(source, store, task.job(-7, str(tmp_path / "done")))
    await drain(source)
    (dead,) = (await client.list_jobs(state="dead", queue="labels")).jobs
    words = f"job {dead.id} is dead (ValueError): -7 is negative"
    for _ in range(2):
        job = await client.get(job_id)
        assert (job.state, job.attempts[-1].code, job.attempts[-1].message) == (
            State.DEAD,
            "JobFailed",
            words,
        )
        await client.retry(job_id)
        await drain(source)
    await client.retry(dead.id)
    await client.retry(job_id)
    await drain(source, ["default"])
    assert (await client.get(job_id)).awaits == "call label"
    await drain(source)
    assert [one.code for one in (await client.get(job_id)).attempts][-2:] == ["suspended", "JobFailed"]
    assert (tmp_path / "done").read_text() == "1"


async def test_a_task_catches_the_failure_and_calls_another_job(source, store):
    client, job_id = await submitted(source, store, tasks.catching.job(-5))
    await drain(source)
    assert (await client.get(job_id)).result == ["ValueError", "-5 is negative", {"label": 5}]


async def test_a_cancelled_job_is_told_as_one(source, store):
    client, job_id = await submitted(source, store, tasks.catching.job(5))
    await drain(source, ["default"])
    (waiting,) = (await client.list_jobs(state="queued", queue="labels")).jobs
    await client.cancel(waiting.id)
    await drain(source)
    assert (await client.get(job_id)).result == ["cancelled", waiting.id]


async def test_several_calls_follow_each_other_and_each_runs_once(source, store):
    client, job_id = await submitted(source, store, tasks.several.job(3))
    await drain(source)
    job = await client.get(job_id)
    assert job.result == [{"label": 0}, {"label": 1}, {"label": 2}, "label 3"]
    assert job.attempt == 5
    assert len((await client.list_jobs(queue="labels")).jobs) == 4


async def test_calls_in_a_task_group(source, store):
    client, job_id = await submitted(source, store, tasks.at_once.job(3))
    await drain(source)
    assert (await client.get(job_id)).result == [{"label": 0}, {"label": 1}, {"label": 2}]
    assert len((await client.list_jobs(queue="labels")).jobs) == 3


async def test_the_called_job_has_the_options_of_its_task(source, store):
    client, job_id = await submitted(source, store, tasks.catching.job(5))
    await drain(source, ["default"])
    (waiting,) = (await client.list_jobs(state="queued", queue="labels")).jobs
    assert (waiting.task, waiting.max_attempts, waiting.id.startswith("0-call-")) == ("label", 1, True)
    assert (await client.get(job_id)).awaits == "call label"


async def test_a_full_queue_raises_in_the_task(source, store):
    client, job_id = await submitted(source, store, tasks.catching.job(5))
    await source.submit([tasks.label.job(1)])
    await client.configure("labels", jobs=1)
    await drain(source, ["default"])
    job = await client.get(job_id)
    assert (job.state, job.attempts[0].code, job.steps) == (State.DEAD, "QueueFull", ())
    assert "queue labels may hold 1 jobs and has 1" in job.attempts[0].message
    await client.configure("labels", jobs=None)
    await client.retry(job_id)
    await drain(source)
    assert (await client.get(job_id)).result == [{"label": 5}]


async def test_a_large_result_is_fetched(place, store, tmp_path):
    settings = replace(place.settings, large_payloads=Files(tmp_path), large_above=100)
    big = Store(settings, client=place.client(), blocking=place.client())
    try:
        client, job_id = await submitted(big, big, tasks.large.job(200_000))
        await drain(big)
        assert (await client.get(job_id)).result == 200_007
    finally:
        await big.aclose()


async def test_a_result_that_is_too_large_for_a_step_is_named(source, store):
    client, job_id = await submitted(source, store, tasks.large.job(70_000))
    await drain(source)
    (_, failed) = (await client.get(job_id)).attempts
    assert failed.code == "Invalid"
    assert "is completed, but its result has 70009 bytes, and a call takes 65536" in failed.message


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no job", "step 'label': 'label' is not a job: give ctx.call the result of Task.job(…)"),
        ("twice", "step 'label' is used twice in this attempt"),
        ("a step", "step 'label' is used twice in this attempt"),
        ("then a step", "signal 'label': a ctx.call of this job has this name: give the signal another one"),
    ],
)
async def test_a_misuse_is_named(store, how, words):
    client, job_id = await submitted(store, store, tasks.wrong.job(how))
    await drain(store)
    job = await client.get(job_id)
    assert (job.state, job.attempts[-1].code) == (State.DEAD, "Invalid")
    assert words in job.attempts[-1].message
