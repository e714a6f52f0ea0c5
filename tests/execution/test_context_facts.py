"""Tags, tries and arguments of a job, as its task and the middleware see them, from Redis and over HTTP."""

import asyncio
from datetime import date

import pytest

from sublet import App, Context, JobFailed, Snooze
from sublet.client.client import Client
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import context_tasks as tasks

pytest_plugins = ["tests.support.job_sources", "tests.support.http_settings"]


@pytest.fixture
def client(store):
    return Client(store=store)


@pytest.fixture
async def run(source, client):
    """Submit a job, run it to its end, and give it as it is then."""

    async def run(app, job):
        (submitted,) = await client.submit_all([job])
        worker = Worker(app, source, WorkerConfig(slots=1, processes=1, grace=0.0))
        working = asyncio.create_task(worker.run())
        try:
            await client.result(submitted.id, 30)
        except JobFailed as failed:
            raise AssertionError(failed.detail) from None
        finally:
            worker.stop()
            await working
        return await client.get(submitted.id)

    return run


@pytest.mark.parametrize("name", ["on_loop", "in_a_thread", "in_a_child"])
async def test_a_task_sees_tries_arguments_and_tags_of_its_job(run, name):
    tasks.seen.clear()
    job = await run(tasks.app, tasks.app.tasks[name].job(date(2026, 1, 2)))
    assert job.tags == ("tenant:acme", "import")
    assert job.attempts[0].message == "{'attempt': 1, 'tries_left': 1, 'max_attempts': 2}"
    assert job.result == {
        **{"attempt": 2, "tries_left": 0, "max_attempts": 2, "tags": ["tenant:acme", "import"]},
        "types": {"day": "date"},
        "seen": [["day"], ["day"]],
    }


async def test_a_released_attempt_uses_no_try(run, place):
    app, left = App(settings=place.settings), []

    @app.task(max_attempts=1)
    async def work(ctx: Context):
        left.append((ctx.attempt, ctx.tries_left, ctx.max_attempts))
        if ctx.attempt < 3:
            raise Snooze(0)

    await run(app, work.job())
    assert left == [(1, 0, 1), (2, 0, 1), (3, 0, 1)]


async def test_a_retried_job_has_all_its_tries_again(run, client, source, place):
    app, left = App(settings=place.settings), []

    @app.task(max_attempts=2, backoff=0.01)
    async def work(ctx: Context):
        left.append((ctx.attempt, ctx.tries_left))
        if ctx.attempt < 4:
            raise ValueError

    (submitted,) = await client.submit_all([work.job()])
    await Worker(app, source, WorkerConfig(slots=1)).run(drain=True, linger=1.0)
    await client.retry(submitted.id)
    await Worker(app, source, WorkerConfig(slots=1)).run(drain=True, linger=1.0)
    assert left == [(1, 1), (2, 0), (3, 1), (4, 0)]


async def test_arguments_are_read_only(run, place):
    app = App(settings=place.settings)

    @app.task(max_attempts=1)
    async def work(ctx: Context, n: int) -> str:
        try:
            ctx.arguments["n"] = 2
        except TypeError:
            return f"{n} {ctx.arguments['n']}"
        return "changed"

    assert (await run(app, work.job(1))).result == "1 1"


async def test_a_job_without_tags_has_none(run, place):
    app = App(settings=place.settings)

    @app.task
    async def work(ctx: Context) -> list[str]:
        return list(ctx.tags)

    job = await run(app, work.job())
    assert (job.tags, job.result) == ((), [])
