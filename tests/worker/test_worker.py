"""The worker: claim, heartbeats, run, then complete, fail or release. In this process, with every backend."""

import asyncio
import gc
import os
import time
from types import SimpleNamespace

import pytest

from sublet import App, Invalid, JobCancelled, JobFailed, Options, Settings, State
from sublet.context import Context
from sublet.execution.attempt import Attempt
from sublet.model import Completion
from sublet.worker import heartbeat
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import tasks

pytest_plugins = ["tests.support.job_sources"]
IS_ITS_OWN_AFFAIR = pytest.mark.parametrize("over", ["redis"])
"""For tests that do not depend on the source."""


@pytest.fixture
async def hire(source):
    """Run a worker beside the test; it is stopped at the end."""
    hired = []

    def start(app=tasks.app, *, source=source, report=lambda *_: None, **how):
        config = WorkerConfig(**{"slots": 4, "grace": 0.0, "name": f"w{len(hired)}", **how})
        worker = Worker(app, source, config, report)
        hired.append((worker, asyncio.create_task(worker.run())))
        return worker

    yield start
    for worker, running in hired:
        worker.stop()
        await asyncio.wait_for(running, 15)


async def until(condition, seconds=10.0):
    """Wait until an async condition holds, and give its value."""
    deadline = time.monotonic() + seconds
    while not (value := await condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.005)
    return value


async def submit(client, *jobs):
    return [submitted.id for submitted in await client.submit_all(jobs)]


async def test_a_job_is_run_and_its_result_kept(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.add.job(2, b=3))
    assert await client.result(job_id, 10) == 5
    job = await client.get(job_id)
    assert (job.state, job.result, job.attempt, job.payload) == (State.COMPLETED, 5, 1, None)
    assert [(line.number, line.worker, line.code) for line in job.attempts] == [(1, "w0", "completed")]


async def test_a_plain_function_runs_in_a_child_process(client, hire):
    hire()
    first, second = await submit(client, tasks.plain.job(1), tasks.plain.job(2))
    results = [await client.result(job_id, 20) for job_id in (first, second)]
    assert [result["a"] for result in results] == [1, 2]
    assert os.getpid() not in {result["pid"] for result in results}


@IS_ITS_OWN_AFFAIR
async def test_a_plain_function_may_run_in_a_thread(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.threaded.job())
    pid, thread = await client.result(job_id, 10)
    assert pid == os.getpid()
    assert thread.startswith("sublet-task")


@pytest.mark.parametrize("task", [tasks.asks, tasks.plain_asks], ids=["loop", "child"])
async def test_a_task_reads_its_attempt_and_reports_progress(client, hire, task):
    hire()
    (job_id,) = await submit(client, task.job())
    assert await client.result(job_id, 20) == [job_id, 1, True, None]


async def test_a_worker_reports_when_its_last_job_ended(client, hire, store, monkeypatch):
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.1)
    hire(lease=0.3)

    async def registered():
        return await store.workers()

    (worker,) = await until(registered)
    assert worker.last_job_at is None
    (job_id,) = await submit(client, tasks.add.job(1))
    await client.result(job_id, 10)

    async def last_job_at():
        (worker,) = await store.workers()
        return worker.last_job_at

    found, job = await until(last_job_at), await client.get(job_id)
    assert abs((found - job.finished_at).total_seconds()) < 10


async def test_a_worker_registers_the_memory_of_itself_and_its_child_processes(
    client, hire, store, monkeypatch
):
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.1)
    hire(lease=0.3)

    async def memory():
        (worker,) = await store.workers() or [None]
        return worker and worker.about["memory"]

    before = await until(memory)
    assert before > 5_000_000
    await client.result((await submit(client, tasks.plain_asks.job()))[0], 20)

    async def has_grown():
        return await memory() > before + 5_000_000

    await until(has_grown)


async def test_progress_comes_with_the_next_heartbeat(client, hire):
    hire(lease=0.3)
    (job_id,) = await submit(client, tasks.waits_until_cancelled.job())

    async def progress():
        return (await client.get(job_id)).progress

    assert await until(progress) == {"fraction": 0.25}


async def test_a_failure_is_stored_with_its_traceback_and_retried(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.raises.job("no\nsuch file"))
    with pytest.raises(JobFailed, match="no such file") as failed:
        await client.result(job_id, 10)
    assert failed.value.code == "ValueError"
    assert "raise ValueError(words)" in failed.value.detail
    job = await client.get(job_id)
    assert [line.code for line in job.attempts] == ["ValueError", "ValueError"]
    assert job.state is State.DEAD


async def test_a_snooze_releases_the_job_without_counting_the_attempt(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.snoozes.options(max_attempts=1).job())
    assert await client.result(job_id, 10) == 3
    assert [(line.code, line.message) for line in (await client.get(job_id)).attempts[:2]] == [
        ("released", "not yet")
    ] * 2


async def test_a_discarded_job_is_dead_at_once(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.discards.job())
    with pytest.raises(JobFailed, match="of no use"):
        await client.result(job_id, 10)
    assert (await client.get(job_id)).attempt == 1


async def test_a_result_that_does_not_match_the_annotation_is_a_failure(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.returns_words.job())
    with pytest.raises(
        JobFailed,
        match="returned a value that does not match its return annotation: int is expected, not str",
    ):
        await client.result(job_id, 10)


async def test_a_task_is_ended_at_its_timeout(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.too_long.job())
    with pytest.raises(JobFailed, match=r"ran longer than 0\.1 s") as failed:
        await client.result(job_id, 10)
    assert failed.value.code == "timed_out"


@IS_ITS_OWN_AFFAIR
async def test_a_stuck_child_is_killed_at_its_timeout(client, hire, tmp_path):
    hire()
    pid_file = tmp_path / "pid"
    (job_id,) = await submit(client, tasks.plain_stuck.options(timeout=3).job(str(pid_file)))
    with pytest.raises(JobFailed) as failed:
        await client.result(job_id, 20)
    assert failed.value.code == "timed_out"
    await until(lambda: gone(int(pid_file.read_text())))


async def gone(pid):
    return not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240  # a look at /proc does not block


@IS_ITS_OWN_AFFAIR
@pytest.mark.parametrize(("how", "words"), [("exit", "exited with code 3"), ("kill", "died of SIGKILL")])
async def test_a_crashed_child_is_noticed_at_once_and_its_job_runs_again(client, hire, how, words):
    hire(lease=60)
    (job_id,) = await submit(client, tasks.plain_dies.job(how))
    assert await client.result(job_id, 20) == 2
    first = (await client.get(job_id)).attempts[0]
    assert (first.code, words in first.message) == ("crashed", True)


@IS_ITS_OWN_AFFAIR
async def test_an_exception_in_a_child_reaches_the_job(client, hire):
    hire()
    (job_id,) = await submit(client, tasks.plain_raises.job())
    with pytest.raises(JobFailed, match="no such thing") as failed:
        await client.result(job_id, 20)
    assert failed.value.code == "KeyError"
    assert "plain_raises" in failed.value.detail


async def test_a_job_of_an_unknown_task_is_released_for_another_worker(client, hire):
    hire()
    job_id = (await client.submit("nowhere", {"a": 1})).id

    async def released():
        return (await client.get(job_id)).attempts

    (first,) = await until(released)
    assert (first.code, first.message) == ("unknown_task", "this worker has no task nowhere")
    job = await client.get(job_id)
    assert (job.state, job.tries_left, job.payload) == (State.SCHEDULED, 3, {"a": 1})


@pytest.mark.parametrize("task", ["add", "plain"])
async def test_an_invalid_payload_is_released_for_newer_code(client, hire, task):
    hire()
    job_id = (await client.submit(task, {"a": "words"})).id

    async def released():
        return (await client.get(job_id)).attempts

    (first,) = await until(released)
    assert first.code == "unknown_task"
    assert first.message.startswith(
        "the payload does not match this worker's version of the task: a: use a whole number"
    )
    assert "words" not in first.message


async def test_a_running_job_is_cancelled_at_the_next_heartbeat(client, hire):
    hire(lease=0.3)
    (job_id,) = await submit(client, tasks.waits_until_cancelled.job())
    await until(lambda: is_running(client, job_id))
    assert await client.cancel(job_id) == "requested"
    with pytest.raises(JobCancelled):
        await client.result(job_id, 10)
    assert tasks.RUNNING["cancelled"] is True


@pytest.mark.parametrize("by", ["cancel", "cancel_running"])
async def test_a_cancelled_attempt_is_no_failure_in_any_count(client, hire, by):
    seen = []
    worker = hire(lease=0.3, report=lambda event, *_: seen.append(event))
    options = Options(key="k", on_conflict="cancel_running")
    job_id = (await client.submit("waits_until_cancelled", {}, options)).id
    await until(lambda: is_running(client, job_id))
    if by == "cancel":
        await client.cancel(job_id)
    else:
        newer = (await client.submit("add", {"a": 1, "b": 2}, options)).id
    with pytest.raises(JobCancelled):
        await client.result(job_id, 10)
    if by == "cancel_running":
        assert await client.result(newer, 10) == 3

    async def settled():
        return worker.summary.cancelled

    assert await until(settled) == 1
    assert (worker.summary.failed, seen.count("failed"), seen.count("cancelled")) == (0, 0, 1)
    (totals,) = [stats.totals for stats in await client.stats()]
    assert (totals["failed"], totals["cancelled"]) == (0, 1)


async def is_running(client, job_id):
    return (await client.get(job_id)).state is State.RUNNING


async def test_heartbeats_keep_a_job_that_is_longer_than_its_lease(client, hire):
    worker = hire(lease=0.3)
    (job_id,) = await submit(client, tasks.crowd.job(1.0))
    await until(lambda: is_running(client, job_id))
    hire(lease=0.3)  # would take the job if its lease ended
    await client.result(job_id, 10)
    assert (await client.get(job_id)).attempt == 1
    assert worker.summary.refused == 0


@IS_ITS_OWN_AFFAIR
async def test_heartbeats_continue_while_plain_functions_use_the_cpu(client, hire):
    hire(lease=0.6)
    ids = await submit(client, *[tasks.holds.job(1.2) for _ in range(3)])
    for job_id in ids:
        await client.result(job_id, 20)
        assert (await client.get(job_id)).attempt == 1


async def test_a_worker_that_lost_its_lease_stops_the_task_and_settles_nothing(client, hire, store, elapse):
    events = []
    hire(slots=1, lease=0.3, report=lambda event, lease, words: events.append(event))
    (job_id,) = await submit(client, tasks.waits_until_cancelled.job())
    await until(lambda: is_running(client, job_id))
    taken = []
    async with asyncio.timeout(20):
        while not taken:  # a heartbeat may come between
            elapse(1)
            taken = (await store.claim(worker="other", queues=["default"], n=1, lease=30)).leases
    (other,) = taken
    assert (other.id, other.attempt, other.recovered) == (job_id, 2, "lease_expired")

    async def lost():
        return "lost" in events

    await until(lost)
    assert await store.settle([Completion(other, b'"theirs"')]) == ["completed"]


async def test_no_more_jobs_run_at_once_than_there_are_slots(client, hire):
    tasks.RUNNING.update(now=0, most=0)
    hire(slots=3)
    ids = await submit(client, *[tasks.crowd.job(0.1) for _ in range(12)])
    for job_id in ids:
        await client.result(job_id, 20)
    assert tasks.RUNNING["most"] == 3


async def test_no_job_is_claimed_without_a_free_slot(client, hire, store):
    hire(slots=2)
    await submit(client, *[tasks.crowd.job(60) for _ in range(5)])

    async def two_run():
        return len((await client.list_jobs(state=State.RUNNING)).jobs) == 2

    await until(two_run)
    assert (await client.queues())[0].queued == 3


async def test_an_idle_worker_wakes_at_once(client, hire):
    hire()
    await client.result((await submit(client, tasks.add.job(1)))[0], 10)
    began = time.monotonic()
    (job_id,) = await submit(client, tasks.add.job(2))
    await client.result(job_id, 10)
    assert time.monotonic() - began < 1.5, "earlier than with a poll every 2 s without a wake-up"


async def test_a_due_job_is_queued_by_a_worker_that_is_busy(client, hire, store):
    """While every slot is taken the worker does not claim, but it keeps its appointment."""
    hire(slots=1)
    (long,) = await submit(client, tasks.crowd.job(60))
    await until(lambda: is_running(client, long))
    (due,) = await submit(client, tasks.add.options(delay=0.05).job(1))

    async def queued():
        return (await client.get(due)).state is State.QUEUED

    await until(queued, 6)


async def test_draining_ends_after_the_last_job(client, source):
    ids = await submit(client, *[tasks.add.job(i) for i in range(250)])
    summary = await Worker(tasks.app, source, WorkerConfig(slots=20)).run(drain=True)
    assert (summary.completed, summary.failed) == (250, 0)
    assert all([(await client.get(job_id)).state is State.COMPLETED for job_id in ids[:5]])


async def test_draining_an_empty_queue_ends_at_once(source):
    assert (await Worker(tasks.app, source).run(drain=True)).completed == 0


async def test_a_worker_stops_when_its_time_is_up(source):
    summary = await Worker(tasks.app, source, WorkerConfig(grace=0)).run(seconds=0.1)
    assert 0.1 <= summary.seconds < 5


async def test_a_stop_releases_unfinished_jobs_without_counting_the_attempt(client, source):
    worker = Worker(tasks.app, source, WorkerConfig(slots=4, grace=0.05))
    running = asyncio.create_task(worker.run())
    long, short = await submit(client, tasks.crowd.job(60), tasks.add.job(1))
    await client.result(short, 10)
    await until(lambda: is_running(client, long))
    worker.stop()
    summary = await running
    job = await client.get(long)
    assert (job.state, job.tries_left, job.attempts[0].code) == (State.QUEUED, 3, "released")
    assert (summary.completed, summary.released) == (1, 1)


async def test_a_stop_lets_jobs_finish_within_the_grace(client, source):
    worker = Worker(tasks.app, source, WorkerConfig(grace=5))
    running = asyncio.create_task(worker.run())
    (job_id,) = await submit(client, tasks.crowd.job(0.3))
    await until(lambda: is_running(client, job_id))
    worker.stop()
    assert (await running).completed == 1


async def test_a_second_stop_skips_the_grace(client, source):
    worker = Worker(tasks.app, source, WorkerConfig(grace=60))
    running = asyncio.create_task(worker.run())
    (job_id,) = await submit(client, tasks.crowd.job(60))
    await until(lambda: is_running(client, job_id))
    worker.stop()
    worker.stop()
    assert (await asyncio.wait_for(running, 10)).released == 1


async def test_an_abandoned_claim_releases_its_jobs(client, source):
    """The claim reached Redis, and the caller was cancelled before the answer: the jobs are released before
    their leases end.
    """
    (job_id,) = await submit(client, tasks.add.job(1))
    claiming = asyncio.create_task(source.claim(worker="w", queues=["default"], n=1, lease=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming

    async def back():
        job = await client.get(job_id)
        return job.state is State.QUEUED and (not job.attempt or job.attempts[0].code == "released")

    await until(back)


async def test_a_worker_continues_after_a_flush(client, hire, raw):
    hire(lease=0.3)
    (gone_id,) = await submit(client, tasks.crowd.job(60))
    await until(lambda: is_running(client, gone_id))
    for key in raw.scan_iter(match=f"{{{client.store.settings.namespace}:*", count=1000):
        raw.delete(key)
    (job_id,) = await submit(client, tasks.add.job(1))
    assert await client.result(job_id, 10) == 2


async def test_options_of_a_submit_differ_from_the_tasks(client):
    (job_id,) = await submit(client, tasks.add.options(queue="other", priority=7, key="k", delay=60).job(1))
    job = await client.get(job_id)
    assert (job.queue, job.priority, job.key, job.state) == ("other", 7, "k", State.SCHEDULED)
    assert tasks.add.defaults == Options()


def test_a_plain_function_that_children_cannot_import_is_refused_at_the_start(store):
    app = App(settings=Settings())

    @app.task
    def hidden() -> None: ...

    with pytest.raises(Invalid, match="declare it at the top of its module, or give it run='thread'"):
        Worker(app, store)


async def test_a_stop_takes_effect_at_any_moment(client, source):
    """Also in the turn in which another event woke the claim loop, which must not swallow its cancellation."""
    for i in range(30):
        worker = Worker(tasks.app, source, WorkerConfig(slots=2, grace=0))
        running = asyncio.create_task(worker.run())
        await submit(client, tasks.add.job(i))
        for _ in range(i):
            await asyncio.sleep(0)
        worker._capacity.changed.set()
        worker.stop()
        await asyncio.wait_for(running, 15)


@IS_ITS_OWN_AFFAIR
@pytest.mark.parametrize("task", [tasks.unspeakable, tasks.plain_unspeakable], ids=["loop", "child"])
async def test_an_exception_with_a_broken_message_is_a_failure(client, hire, task):
    hire()
    (job_id,) = await submit(client, task.job())
    with pytest.raises(JobFailed, match="message cannot be read: its code raised RuntimeError") as failed:
        await client.result(job_id, 20)
    assert failed.value.code == "Unspeakable"


@IS_ITS_OWN_AFFAIR
@pytest.mark.parametrize(("how", "code"), [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt")])
async def test_a_task_that_exits_does_not_end_the_worker(client, hire, how, code):
    hire()
    exits, after = await submit(client, tasks.exits.job(how), tasks.add.job(1))
    with pytest.raises(JobFailed) as failed:
        await client.result(exits, 10)
    assert failed.value.code == code
    assert await client.result(after, 10) == 2


@IS_ITS_OWN_AFFAIR
async def test_a_child_has_an_empty_stdin(client, hire):
    """Its stdin is not the pipe to the worker, which a task could swallow."""
    hire()
    (job_id,) = await submit(client, tasks.plain_asks_a_person.job())
    with pytest.raises(JobFailed) as failed:
        await client.result(job_id, 20)
    assert failed.value.code == "EOFError"


@IS_ITS_OWN_AFFAIR
async def test_finished_jobs_leave_no_reference_cycles(client, hire, over):
    hire()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        ids = await submit(
            client, *(job for n in range(20) for job in (tasks.add.job(n), tasks.plain.job(n)))
        )
        assert len([await client.result(job_id, 30) for job_id in ids]) == 40
        gc.collect()
        left = [thing for thing in gc.garbage if isinstance(thing, Attempt | Context)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []


@IS_ITS_OWN_AFFAIR
async def test_code_outside_tasks_that_blocks_the_loop_is_not_blamed_on_a_job(client, hire, over):
    """An ended but unsettled attempt has no running task."""
    worker = hire()
    await submit(client, tasks.add.job(1))
    settling = asyncio.Event()

    async def settle(endings):
        settling.set()
        await asyncio.Event().wait()

    worker._settling._source = SimpleNamespace(settle=settle)
    await asyncio.wait_for(settling.wait(), 10)
    assert len(worker._attempts) == 1
    assert worker._name_of(None) == "code outside of the tasks"


@IS_ITS_OWN_AFFAIR
async def test_finished_jobs_leave_no_timeout_and_a_stopped_worker_no_timer(client, source, over):
    worker = Worker(tasks.app, source, WorkerConfig(slots=4, name="w0", grace=0.0))
    await submit(client, *(tasks.add.job(n) for n in range(5)))
    seen = []
    settled = worker._settled
    worker._settling._settled = lambda *how: (
        seen.append(list(worker._timeouts._by_duration.values())),
        settled(*how),
    )
    await worker.run(drain=True)
    assert seen[-1] == [{}], "one timeout, without items"
    assert worker._timeouts._timers == {}
