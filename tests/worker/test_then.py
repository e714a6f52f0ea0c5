"""`Then`: a task completes its job and submits others in one step, with real workers, on Redis and over HTTP."""

import asyncio

import pytest

from sublet import Client, State, Then
from sublet.errors import Unavailable
from sublet.execution import following
from sublet.model import Completion, Failure, Following
from sublet.protocol import keys
from sublet.tasks.arguments import Arguments
from sublet.worker import settle_loop
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import then_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.job_sources"]
KINDS = [tasks.on_loop, tasks.in_thread, pytest.param(tasks.in_child, marks=on_linux)]
QUEUES = ("default", "parts", "merges")


def worker(source, queues=QUEUES):
    return Worker(
        tasks.app, source, WorkerConfig(slots=5, processes=1, lease=60, queues=list(queues), grace=0.0)
    )


async def drain(source, queues=QUEUES):
    async with asyncio.timeout(120):
        return await worker(source, queues).run(drain=True)


async def submitted(source, store, job):
    (answer,) = await source.submit([job])
    return Client(store=store), answer.id


async def merged(client):
    (one,) = (await client.list_jobs(queue="merges")).jobs
    return await client.get(one.id)


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_a_task_completes_and_its_jobs_and_callback_follow(source, store, task):
    client, job_id = await submitted(source, store, task.job(3))
    await drain(source, ["default"])
    job = await client.get(job_id)
    assert (job.state, job.result, job.attempt) == (State.COMPLETED, 3, 1)
    assert (await merged(client)).awaits == "upstream 3"
    await drain(source)
    assert (await merged(client)).result == [0, 1, 2]


@pytest.mark.parametrize(
    "task", [tasks.on_loop, pytest.param(tasks.in_child, marks=on_linux)], ids=lambda task: task.name
)
async def test_more_jobs_than_a_call_takes_start_with_the_completion(source, store, task):
    client, job_id = await submitted(source, store, task.job(700))
    await drain(source, ["default"])
    assert (await client.get(job_id)).result == 700
    await drain(source)
    assert (await merged(client)).result == [*range(700)]


async def test_a_fan_out_over_nothing_completes_and_its_callback_runs(source, store):
    client, job_id = await submitted(source, store, tasks.followed_by_none.job(7))
    _, other = await submitted(source, store, tasks.on_loop.job(0))
    await drain(source)
    assert [(await client.get(one)).result for one in (job_id, other)] == [7, 0]
    assert (await merged(client)).result == []


async def test_a_task_may_return_a_plain_result_instead(source, store):
    client, job_id = await submitted(source, store, tasks.in_thread.job(0))
    await drain(source)
    assert (await client.get(job_id)).result == 0
    assert (await client.list_jobs(queue="merges")).jobs == ()


@pytest.mark.parametrize(
    ("on_failure", "state", "result"),
    [("run", State.COMPLETED, [1, None]), ("cancel", State.CANCELLED, None), ("hold", State.SCHEDULED, None)],
)
async def test_a_failure_of_a_job_that_follows(source, store, on_failure, state, result):
    client, _ = await submitted(source, store, tasks.failing.job(on_failure))
    await drain(source)
    callback = await merged(client)
    assert (callback.state, callback.result) == (state, result)


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.name)
async def test_a_full_queue_keeps_the_job_running_until_there_is_room(source, store, task, monkeypatch):
    monkeypatch.setattr(settle_loop, "FULL_AGAIN", 0.01)
    client, job_id = await submitted(source, store, task.job(3))
    await client.configure("parts", jobs=2)
    tried, real = asyncio.Event(), source.settle

    async def settle(endings):
        answers = await real(endings)
        if any(answer.startswith("QUEUE_FULL job ") or "QUEUE_FULL" in answer for answer in answers):
            tried.set()
        return answers

    monkeypatch.setattr(source, "settle", settle)
    running = asyncio.create_task(drain(source))
    async with asyncio.timeout(60):
        await tried.wait()
    assert (await client.get(job_id)).state is State.RUNNING
    assert (await client.list_jobs(queue="parts")).jobs == ()
    await client.configure("parts", jobs=None)
    await running
    job = await client.get(job_id)
    assert (job.state, job.attempt) == (State.COMPLETED, 1)
    assert (await merged(client)).result == [0, 1, 2]


async def test_a_full_queue_in_the_middle_of_many_jobs_stores_them_later(source, store, monkeypatch):
    monkeypatch.setattr(settle_loop, "FULL_AGAIN", 0.01)
    client, job_id = await submitted(source, store, tasks.on_loop.job(300))
    await client.configure("parts", jobs=250)
    running = asyncio.create_task(drain(source))
    async with asyncio.timeout(60):
        while not (await client.list_jobs(queue="parts", limit=1)).jobs:
            await asyncio.sleep(0.01)
    assert (await client.get(job_id)).state is State.RUNNING
    await client.configure("parts", jobs=None)
    await running
    assert (await merged(client)).result == [*range(300)]


@pytest.mark.parametrize("n", [3, 300])
async def test_a_lost_answer_stores_nothing_twice(store, n, monkeypatch):
    monkeypatch.setattr("sublet.worker.settle_loop.RETRY_AFTER", 0.01)
    client, job_id = await submitted(store, store, tasks.on_loop.job(n))
    settle, calls = store.settle, []

    async def lose(endings):
        answers = await settle(endings)
        if len(calls) < 2:
            calls.append(answers)
            raise Unavailable("no answer")
        return answers

    monkeypatch.setattr(store, "settle", lose)
    await drain(store, ["default"])
    await drain(store, ["parts"])
    assert calls == [["completed"]] * 2
    monkeypatch.setattr(store, "settle", settle)
    await drain(store)
    assert (await merged(client)).result == [*range(n)]
    assert (await client.get(job_id)).attempt == 1


async def test_a_late_repeat_is_answered_although_the_jobs_are_gone(store, raw, base):
    await store.submit([tasks.on_loop.job(0)])
    (lease,) = (await store.claim(worker="w", queues=["default"], n=1, lease=30)).leases
    jobs = tuple(tasks.parts(300))
    ending = Completion(lease, b"1", Following("0-flow", jobs))
    assert await store.settle([ending]) == ["completed"]
    raw.delete(*(keys.job(base, job.id) for job in jobs))
    assert await store.settle([ending]) == ["completed"]


async def test_several_outcomes_are_answered_in_their_order(source, store):
    await source.submit([tasks.on_loop.job(0) for _ in range(4)])
    one, two, three, four = (await source.claim(worker="w", queues=["default"], n=4, lease=30)).leases
    jobs = tuple(tasks.parts(2))
    endings = [
        Completion(one, b"1", Following("0-f", jobs)),
        Failure(two, "Boom", again=False),
        Completion(three._replace(token="1.of-a-ghost"), b"1", Following("0-g", tuple(tasks.parts(2)))),
        Completion(four, b"1"),
    ]
    assert await source.settle(endings) == ["completed", "dead", "LEASE_LOST", "completed"]
    assert len((await Client(store=store).list_jobs(queue="parts")).jobs) == 2


@on_linux
async def test_large_arguments_pass_the_pipes(source, store):
    client, _ = await submitted(source, store, tasks.large.job(12, 100_000))
    await drain(source)
    assert (await merged(client)).result == [100_000] * 12


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no job", "returned Then with a str, which is not a job: use the result of Task.job(…)"),
        ("None", "returned Then with a NoneType, which is not a job: use the result of Task.job(…)"),
        ("twice", "returned Then with two jobs of one id: call Task.job(…) for each"),
        ("result", "returned a value that does not match its return annotation"),
        ("too many", "returned Then of 10,001 jobs: at most 10,000 may follow a job"),
        ("partition", "returned Then with a job for queue parts, which is in another partition"),
        (
            "size",
            "returned Then with arguments of 300,000 bytes (JSON): a job that follows takes at most 262,144",
        ),
        ("key", "its id is unique, so leave out key"),
    ],
)
async def test_a_misuse_is_named_and_nothing_is_stored(source, store, how, words, monkeypatch):
    failures = []
    monkeypatch.setattr(tasks.app, "failure_hooks", [failures.append])
    client, job_id = await submitted(source, store, tasks.wrong.job(how))
    summary = await drain(source, ["default"])
    assert (summary.failed, summary.completed) == (1, 0)
    job = await client.get(job_id)
    assert (job.state, job.attempts[0].code) == (State.DEAD, "invalid_result")
    assert words in job.attempts[0].message
    (failure,) = failures
    assert (failure.id, failure.state, failure.code) == (job_id, State.DEAD, "invalid_result")
    assert words in failure.message
    assert (await client.list_jobs(queue="parts")).jobs == ()


async def test_an_unknown_policy_is_named(store):
    client, job_id = await submitted(store, store, tasks.failing.job("skip"))
    await drain(store, ["default"])
    assert (
        "on_failure='skip': use 'cancel', 'run' or 'hold'" in (await client.get(job_id)).attempts[0].message
    )


# parts


@pytest.mark.parametrize(("n", "has_callback"), [(0, False), (0, True), (1, False), (1, True), (900, True)])
def test_the_chunks_of_a_child_process_are_joined(n, has_callback):
    jobs = tuple(tasks.part.job(number)._replace(payload=b"\xff{}" * 200) for number in range(n))
    sent = Following("0-f", jobs, tasks.merge.job() if has_callback else None, "run")
    found = None
    parts = [*following.chunks(sent)]
    for part in parts:
        assert len(part) < 1 << 20
        found = following.joined(found, part)
    assert found == sent
    assert (len(parts) > 2) == (n == 900)


def test_the_annotation_of_the_result_is_that_in_then():
    def split() -> Then[int] | None: ...

    arguments = Arguments("split", split)
    assert arguments.schemas()[1] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
