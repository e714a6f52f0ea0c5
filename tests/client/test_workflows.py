"""Workflows in Python: jobs that wait for others, stored together."""

import asyncio
import subprocess
import sys
from functools import partial

import pytest

from sublet import App, Invalid, JobCancelled, Options, State
from sublet.client.sync_client import SyncClient
from sublet.errors import NotFound, QueueFull
from sublet.model import Submission
from sublet.protocol import keys
from sublet.workflows import graph
from sublet.workflows.graph import Node
from sublet.workflows.storing import WorkflowResult
from tests.support.pages import blocks, page_environment
from tests.support.paths import ROOT


@pytest.fixture
def work(app):
    """An app with one task."""

    @app.task(queue="q")
    async def page(number: int) -> int:
        return number

    return page


async def finish(desk, *failing, most=50):
    """Work until no job can start: those with a number in `failing` die."""
    for _ in range(most):
        leases = await desk.claim(50)
        for lease in leases:
            if any(f'"number":{number}}}' in lease.payload.decode() for number in failing):
                await desk.fail(lease, again=False)
            else:
                await desk.complete(lease, lease.payload)
        if not leases and not (await desk.reap())[2]:
            return


async def test_a_fan_out_with_a_callback(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(5)]
        index = flow.add(work.job(100), after=pages)
        flow.add(work.job(101), after=index)
    with pytest.raises(TimeoutError, match=f"workflow {flow.id} has not ended after 0 s"):
        await flow.result(timeout=0)
    await finish(desk)
    result = await flow.result()
    assert (result, result.is_success) == (WorkflowResult(7, 0, 0), True)
    assert [one.value for one in await client.upstream(index.id)] == [{"number": n} for n in range(5)]


async def test_a_callback_on_any_end_sees_which_jobs_failed(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(3)]
        index = flow.add(work.job(100), after=pages, on_failure="run")
        other = flow.add(work.job(101), after=pages[1])
    await finish(desk, 1)
    assert [one.state for one in await client.upstream(index.id)] == [
        State.COMPLETED,
        State.DEAD,
        State.COMPLETED,
    ]
    result = await flow.result()
    assert (result, result.is_success) == (WorkflowResult(3, 1, 1), False)
    with pytest.raises(JobCancelled) as raised:
        await other.result()
    assert str(raised.value) == f"job {other.id} was cancelled: upstream job {pages[1].id} is dead"
    assert raised.value.cause == f"upstream job {pages[1].id} is dead"


async def test_a_waiting_job_shows_its_reason(client, work, desk):
    async with client.workflow() as flow:
        first = flow.add(work.job(1))
        held = flow.add(work.job(2), after=[first, flow.add(work.job(3))], on_failure="hold")
        cancelled = flow.add(work.job(4), after=first)
    assert (await client.get(held.id)).awaits == "upstream 2"
    await finish(desk, 1)
    assert (await client.get(held.id)).awaits == f"retry {first.id}"
    ended = await client.get(cancelled.id)
    assert (ended.awaits, ended.last_error.message) == (None, f"job {first.id} is dead")


async def test_an_exception_in_the_block_stores_nothing(client, work, desk):
    with pytest.raises(ValueError, match="stop"):  # noqa: PT012  # the end of the block raises
        async with client.workflow() as flow:
            flow.add(work.job(1))
            raise ValueError("stop")
    assert desk.raw.keys(f"{desk.base}:job:*") == []


async def test_an_empty_workflow_has_ended(client):
    async with client.workflow() as flow:
        pass
    assert await flow.result() == WorkflowResult(0, 0, 0)


async def test_a_workflow_of_1000_jobs_takes_several_calls(client, work, desk):
    async with client.workflow() as flow:
        pages = [flow.add(work.job(number)) for number in range(600)]
        checks = [flow.add(work.job(1000 + number), after=page) for number, page in enumerate(pages[:399])]
        index = flow.add(work.job(5000), after=pages)
        flow.add(work.job(5001), after=[index, *checks])
    await finish(desk)
    assert await flow.result() == WorkflowResult(1001, 0, 0)
    assert len(await client.upstream(index.id)) == 600


async def test_of_two_wide_jobs_in_a_row_the_second_has_at_most_500_upstreams(client, work, desk):
    async with client.workflow() as flow:
        begin = flow.add(work.job(0))
        pages = [flow.add(work.job(number), after=begin) for number in range(1, 500)]
        index = flow.add(work.job(5000), after=pages)
        flow.add(work.job(5001), after=[index, *pages])
    await finish(desk)
    assert await flow.result() == WorkflowResult(502, 0, 0)
    with pytest.raises(  # noqa: PT012  # the end of the block raises
        Invalid, match=r"waits for more than 500 jobs, and one of them, \S+, for more than 100: let \S+ wait"
    ):
        async with client.workflow() as flow:
            pages = [flow.add(work.job(number)) for number in range(500)]
            index = flow.add(work.job(5000), after=pages)
            flow.add(work.job(5001), after=[index, *pages])


async def test_a_refused_call_of_several_cancels_the_workflow(client, work, desk):
    await desk.operate_queue("configure", "q", None, "jobs=250")
    with pytest.raises(  # noqa: PT012  # the end of the block raises
        QueueFull, match="queue q may hold 250 jobs and has 250; nothing of this call was stored"
    ):
        async with client.workflow() as flow:
            for number in range(300):
                flow.add(work.job(number))
    assert desk.raw.hget(keys.workflow(desk.base, flow.id), "state") == "cancelled"
    await finish(desk)
    assert desk.raw.zcard(keys.structure(desk.base, "cancelled")) == 240


async def test_a_job_waits_for_an_earlier_one_and_is_given_up(client, work, desk):
    earlier = await client.submit("page", {"number": 1}, Options(queue="q"))
    async with client.workflow() as flow:
        late = flow.add(work.job(2), after=earlier.id, give_up=60)
    desk.elapse(61)
    await desk.reap()
    with pytest.raises(JobCancelled, match="was cancelled: it waited for too long"):
        await late.result()
    assert await flow.result() == WorkflowResult(0, 0, 1)


async def test_a_batch_grows_while_it_runs(client, work, desk):
    async with client.workflow() as flow:
        first = flow.add(work.job(1))
        last = flow.add(work.job(2), after=first)
    async with client.workflow() as more:
        more.add(work.job(3), into=last)
    await desk.complete(await desk.take(first.id))
    assert (await last.get()).state == "scheduled"
    await finish(desk)
    assert (await last.get()).state == "completed"


@pytest.mark.real_server
def test_the_sync_client_does_the_same(place, work, raw, base):
    with SyncClient(place.settings) as client:
        with client.workflow() as flow:
            first = flow.add(work.job(1))
            flow.add(work.job(2), after=first)
        with pytest.raises(TimeoutError):
            flow.result(timeout=0)
    assert raw.zcard(keys.members(base, flow.id)) == 2


@pytest.mark.real_server
def test_the_page_of_workflows_works_as_written(tmp_path, place):
    page = (ROOT / "docs" / "guides" / "workflows.md").read_text()
    (name, text), *_ = blocks("python", page)
    (tmp_path / name).write_text(text)
    main = "import asyncio, crawl; asyncio.run(crawl.crawl('example.org', 30))"
    env = page_environment(tmp_path, place) | {"PYTHONPATH": str(ROOT / "jobs")}
    how = {"cwd": tmp_path, "env": env, "text": True}
    worker = subprocess.Popen([sys.executable, "-m", "sublet", "work", "crawl:app"], **how)
    try:
        done = subprocess.run(
            [sys.executable, "-c", main], check=False, timeout=60, capture_output=True, **how
        )
    finally:
        worker.terminate()
        worker.wait(30)
    result = "WorkflowResult(completed=32, dead=0, cancelled=0)"
    assert (done.stdout, done.stderr) == (f"example.org: 30 pages, 0 failed {result}\n", "")


# bad input


async def test_a_cycle_is_named(client, work, desk):
    with pytest.raises(Invalid) as raised:  # noqa: PT012  # the end of the block raises
        async with client.workflow() as flow:
            a = flow.add(work.job(1))
            b = flow.add(work.job(2), after=a)
            c = flow.add(work.job(3), after=b, into=a)
    assert str(raised.value) == f"the workflow has a cycle: {a.id} → {b.id} → {c.id} → {a.id}"
    assert desk.raw.keys(f"{desk.base}:job:*") == []


async def test_an_edge_to_a_job_that_has_ended_or_does_not_exist_is_named(client, work, desk):
    done = await client.submit("page", {"number": 1}, Options(queue="q"))
    await finish(desk)
    for upstream, error, text in (
        (done, Exception, "is completed"),
        ("0-none", NotFound, "is neither above it nor stored"),
    ):
        with pytest.raises(error, match=text):
            async with client.workflow() as flow:
                flow.add(work.job(2), after=upstream)


async def test_what_cannot_be_added_is_refused(client, work):
    async with client.workflow() as flow:
        one = work.job(1)
        flow.add(one)
        with pytest.raises(Invalid, match="was added before: make a job for each add"):
            flow.add(one)
        with pytest.raises(Invalid, match="on_failure='skip': use 'cancel', 'run' or 'hold'"):
            flow.add(work.job(2), on_failure="skip")
        with pytest.raises(Invalid, match="7 is not a job: give the handle that `add` returned, or an id"):
            flow.add(work.job(2), after=[7])
        with pytest.raises(Invalid, match="5 is not a job: give the handle that `add` returned, or an id"):
            flow.add(work.job(2), after=5)
        with pytest.raises(Invalid, match="job id 'a b': use 1 to 64 of"):
            flow.add(work.job(2), after="a b")
        with pytest.raises(Invalid, match="job id '': use 1 to 64 of"):
            flow.add(work.job(2), into=[""])
        with pytest.raises(
            Invalid, match=f"handle that `add` returned for job {(other := work.job(2)).id}, not the job"
        ):
            flow.add(work.job(3), after=other)
        running = asyncio.sleep(0)
        with pytest.raises(Invalid, match=r"add takes a job that `Task.job\(…\)` made, not coroutine"):
            flow.add(running)
        running.close()
        with pytest.raises(Invalid, match="give_up 0 s: use 1 s or more"):
            flow.add(work.job(2), give_up=0)
    with pytest.raises(Invalid, match="a stored workflow takes no more jobs"):
        flow.add(work.job(3))


async def test_before_the_end_of_the_block_nothing_is_stored_and_the_errors_say_so(client, work, desk):
    async with client.workflow() as flow:
        handle = flow.add(work.job(1))
        later = partial(handle.reschedule, priority=1)
        for call in (handle.result, handle.get, handle.cancel, partial(handle.signal, "go"), later):
            with pytest.raises(Invalid, match=f"job {handle.id} is not stored: the end of its workflow's"):
                await call()
        for call in (flow.result, flow.get, flow.cancel):
            with pytest.raises(
                Invalid, match="the workflow is not stored: the end of its `async with` block stores it"
            ):
                await call()
    assert (await handle.get()).workflow == flow.id


async def test_the_upstream_of_a_job_that_does_not_exist_is_not_found(client, work, desk):
    with pytest.raises(NotFound, match="no job 0-none: it never existed"):
        await client.upstream("0-none")
    alone = await client.submit("page", {"number": 1}, Options(queue="q"))
    assert await client.upstream(alone.id) == []


async def test_a_workflow_summons_workers_for_its_queues(client, work, desk):
    nudged = []
    client.store.nudge = nudged.append
    async with client.workflow() as flow:
        flow.add(work.job(2), after=flow.add(work.job(1)))
    assert nudged == [["q", "q"]]


async def test_jobs_of_several_partitions_are_refused(client):
    async with client.workflow() as flow:
        pass
    app = App("redis://none", namespace="n")

    @app.task(queue="q")
    def task() -> None: ...

    flow.add(task.job())
    job = task.job()._replace(id="1-other")
    with pytest.raises(  # noqa: PT012  # the end of the block raises
        Invalid, match="job 1-other is in another partition than the first job of the workflow"
    ):
        flow.add(job)
        await flow.__aexit__(None, None, None)


def test_jobs_stand_behind_their_upstreams(work):
    jobs = [work.job(n)._replace(id=f"0-{n}") for n in range(5)]
    nodes = {job.id: Node(job) for job in jobs}
    for name, *after in (("0-0", "0-3"), ("0-1", "0-0", "0-4"), ("0-3", "0-4", "0-outside")):
        nodes[name].after = dict.fromkeys(after)
    assert [node.job.id for node in graph.in_order(nodes)] == ["0-4", "0-3", "0-0", "0-1", "0-2"]


def test_the_last_of_several_calls_only_seals():
    jobs = [Submission(f"0-{n}", "q", "page", "", b"{}") for n in range(101)]
    small = {job.id: Node(job) for job in jobs[:40]}
    assert [len(call) for call in graph.calls(small)] == [40]
    fan = {job.id: Node(job) for job in jobs[:100]}
    fan[jobs[100].id] = Node(jobs[100], dict.fromkeys(fan))
    assert [len(call) for call in graph.calls(fan)] == [40, 40, 21, 0]
