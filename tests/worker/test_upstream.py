"""`ctx.upstream`: a task reads the outcomes of the jobs that it waited for, on Redis and over HTTP."""

import asyncio
from dataclasses import replace

import pytest

from sublet import Client, Context, LeaseLost, NotFound
from sublet.errors import Invalid
from sublet.large_payloads import Files
from sublet.model import Lease, News
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from sublet.workflows import upstream
from tests.support import upstream_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.job_sources"]
KINDS = [tasks.listed, tasks.followed, tasks.threaded, pytest.param(tasks.plain, marks=on_linux)]


async def drain(source, **how):
    async with asyncio.timeout(60):
        await Worker(tasks.app, source, WorkerConfig(slots=2, processes=1, lease=60)).run(drain=True, **how)


async def fan_in(store, numbers, last):
    """Store a workflow of these numbers and a task that waits for them; return their ids and its handle."""
    async with Client(store=store).workflow() as flow:
        ids = [flow.add(tasks.number.job(n)).id for n in numbers]
        return ids, flow.add(last.job(), after=ids, on_failure="run")


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_a_task_reads_what_it_waited_for(source, store, task):
    _, last = await fan_in(store, [1, -2, 3], task)
    await drain(source)
    assert await last.result() == [
        ["completed", 1, None],
        ["dead", None, "JobFailed"],
        ["completed", 3, None],
    ]


@pytest.mark.parametrize("task", [tasks.followed, tasks.threaded], ids=lambda task: task.name)
async def test_many_are_read_in_pages(source, store, task, monkeypatch):
    monkeypatch.setattr(upstream, "PAGE", 4)
    _, last = await fan_in(store, range(12), task)
    await drain(source)
    assert [one[1] for one in await last.result()] == [*range(12)]


async def test_a_page_has_no_more_than_it_may(store, desk, monkeypatch):
    monkeypatch.setattr(upstream, "PAGE", 4)
    ids, last = await fan_in(store, range(6), tasks.listed)
    for _ in ids:
        (lease,) = await desk.claim(1, queues=("default",))
        await desk.complete(lease, b"1")
    lease = await desk.take(last.id, queues=("default",))
    first = await store.upstream(lease, 0)
    assert ([job_id for job_id, _ in first.jobs], first.following) == (ids[:4], 4)
    second = await store.upstream(lease, 4)
    assert ([job_id for job_id, _ in second.jobs], second.following) == (ids[4:], None)


async def test_a_job_without_upstreams_has_none(source, store):
    (submitted,) = await source.submit([tasks.listed.job()])
    await drain(source)
    assert (await Client(store=store).get(submitted.id)).result == []


async def test_a_deleted_upstream_and_an_unfinished_one_are_told(source, store):
    client = Client(store=store)
    ids, last = await fan_in(store, [1, 2, 3], tasks.listed)
    await client.cancel(ids[1])
    await client.erase(ids[1])
    await client.reschedule(ids[2], delay=3600)
    await client.promote(last.id)
    await drain(source)
    assert await last.result() == [
        ["completed", 1, None],
        [None, None, "NotFound"],
        ["scheduled", None, None],
    ]


async def test_the_error_says_how_it_failed(source, store):
    client = Client(store=store)
    ids, last = await fan_in(store, [-2, 5], tasks.words)
    await client.cancel(ids[1])
    await drain(source)
    assert await last.result() == [
        f"job {ids[0]} is dead (ValueError): -2 is negative",
        f"job {ids[1]} was cancelled",
    ]


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_a_large_result_is_fetched_and_a_lost_one_is_told(place, store, tmp_path, task):
    settings = replace(place.settings, large_payloads=Files(tmp_path), large_above=1)
    large = Store(settings, client=place.client(), blocking=place.client())
    try:
        ids, last = await fan_in(large, [11, 22], task)
        await drain(large, max_jobs=2)
        (lost,) = (path for path in tmp_path.rglob(f"*.{ids[1]}") if path.is_file())
        lost.unlink()
        await drain(large)
        assert await last.result() == [["completed", 11, None], ["completed", None, "PayloadLost"]]
        _, other = await fan_in(large, [33], task)
        await drain(large, max_jobs=1)
        await drain(store)
        assert (await other.result()) == [["completed", None, "Invalid"]]
    finally:
        await large.aclose()


async def test_a_ghost_reads_nothing(source, store, desk):
    ghost = await desk.running("0-a")
    await desk.release(ghost)
    await desk.take("0-a")
    with pytest.raises(LeaseLost):
        await source.upstream(ghost, 0)
    with pytest.raises(NotFound):
        await source.upstream(ghost._replace(id="0-none"), 0)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (tasks.wrong, "use `async for one in ctx.upstream`, or `await ctx.upstream`"),
        pytest.param(tasks.wrong_plain, "use `for one in ctx.upstream`", marks=on_linux),
    ],
    ids=["async", "plain"],
)
async def test_the_wrong_kind_of_loop_is_named(store, task, words):
    (submitted,) = await store.submit([task.job()])
    await drain(store)
    (ended,) = (await Client(store=store).get(submitted.id)).attempts
    assert (ended.code, words in ended.message) == ("Invalid", True)


def test_a_context_without_a_worker_has_none():
    def nothing(news: News, body: bytes) -> None: ...

    context = Context(Lease("0-1", "7.c", 1, 0, "q", "t", None, b"", ""), nothing)
    with pytest.raises(Invalid, match="run the task with a worker"):
        _ = context.upstream
