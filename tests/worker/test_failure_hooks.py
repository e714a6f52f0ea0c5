"""`@app.on_failure`: which attempts reach the hooks, where they run, and that they never disturb a job."""

import asyncio
import logging
import sys
import threading
import time

import pytest

from sublet import AttemptFailure, Context, Discard, Invalid, Snooze
from sublet.execution import failure_hooks
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.pages import blocks
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.job_sources", "tests.support.http_settings"]
GUIDE = (ROOT / "docs" / "guides" / "failures.md").read_text()


@pytest.fixture
def seen(app):
    """The failures that the hook of the app got."""
    found = []
    app.on_failure(found.append)
    return found


@pytest.fixture
def drain(source, client):
    """Submit jobs and run a worker until all tries are over."""

    async def drain(app, *jobs, **config):
        await client.submit_all(jobs)
        worker = Worker(app, source, WorkerConfig(**{"slots": 2, "processes": 1} | config))
        return await worker.run(drain=True, linger=0.5)

    return drain


def facts(failure):
    return failure.attempt, failure.code, failure.state, failure.will_retry


async def test_a_hook_gets_each_failed_attempt_and_what_becomes_of_the_job(app, seen, drain):
    @app.task(max_attempts=2, backoff=0.01, tags=("a",))
    async def work(secret: str):
        raise ValueError("no paper")

    await drain(app, work.job("secret"))
    first, last = seen
    assert (facts(first), facts(last)) == (
        (1, "ValueError", "scheduled", True),
        (2, "ValueError", "dead", False),
    )
    assert (first.task, first.queue, first.message, first.tags) == ("work", "default", "no paper", ("a",))
    assert first.traceback.endswith("ValueError: no paper\n")
    assert "secret" not in str(first).replace("secret: str", "")


async def test_a_timeout_and_a_discard_reach_the_hook_and_a_snooze_and_a_success_do_not(app, seen, drain):
    @app.task(max_attempts=1, timeout=0.2)
    async def slow():
        await asyncio.sleep(60)

    @app.task
    async def discards():
        raise Discard("no use")

    @app.task
    async def snoozes(ctx: Context):
        if ctx.attempt == 1:
            raise Snooze(0)

    await drain(app, slow.job(), discards.job(), snoozes.job())
    assert sorted((each.task, *facts(each)) for each in seen) == [
        ("discards", 1, "discarded", "dead", False),
        ("slow", 1, "timed_out", "dead", False),
    ]


async def test_async_hooks_run_on_the_loop_and_plain_ones_in_a_thread(app, drain):
    threads = []

    @app.on_failure
    async def on_loop(failure: AttemptFailure):
        await asyncio.sleep(0)
        threads.append(threading.current_thread())

    @app.on_failure
    def in_thread(failure: AttemptFailure):
        threads.append(threading.current_thread())

    @app.task(max_attempts=1)
    async def work():
        raise ValueError

    await drain(app, work.job())
    assert (threads[0] is threading.main_thread(), threads[1].name) == (True, "sublet-failure-hook")


# attempts of workers that are gone


async def test_a_lost_lease_reaches_the_hook_of_the_worker_that_takes_the_job_over(
    app, seen, drain, store, elapse
):
    @app.task(max_attempts=2)
    async def work(ctx: Context) -> str:
        return ctx.recovered

    await store.submit([work.job()])
    await store.claim(worker="gone", queues=["default"], n=1, lease=30)
    elapse(31)
    await drain(app)
    ((failure),) = seen
    assert facts(failure) == (1, "lease_expired", "running", True)


async def test_a_worker_that_is_gone_reaches_the_hook_of_the_next_one(app, seen, drain, store, client):
    @app.task(max_attempts=2)
    async def work(): ...

    await store.submit([work.job()])
    (lease,) = (await store.claim(worker="gone", queues=["default"], n=1, lease=30)).leases
    from sublet.protocol import verbs

    base = store.operations.bases[0]
    assert await store.run(verbs.reconcile(base, "gone", "life", [(lease.id, 1)])) == ["queued"]
    await drain(app)
    assert [facts(each) for each in seen] == [(1, "crashed", "running", True)]


async def test_a_failure_that_its_worker_reported_is_not_reported_again(app, seen, drain, store):
    @app.task(max_attempts=3, backoff=0.01)
    async def work(ctx: Context):
        if ctx.attempt == 1:
            raise ValueError
        if ctx.attempt == 2:
            raise Snooze(0)

    await drain(app, work.job())
    assert [facts(each) for each in seen] == [(1, "ValueError", "scheduled", True)]


async def test_a_job_that_a_lost_lease_made_dead_reaches_the_hook_of_the_worker_that_ended_it(
    app, seen, drain, store, elapse
):
    @app.task(max_attempts=1)
    async def work(): ...

    jobs = [work.job(), work.job()]
    await store.submit(jobs)
    await store.claim(worker="gone", queues=["default"], n=2, lease=30)
    elapse(31)
    await drain(app)
    assert sorted((each.id, each.queue, *facts(each)) for each in seen) == sorted(
        (job.id, "default", 1, "lease_expired", "dead", False) for job in jobs
    )


async def test_a_waiting_worker_learns_of_a_dead_job_before_its_wait_is_over(app, source, store, elapse):
    found = asyncio.Event()

    @app.on_failure
    async def hook(failure: AttemptFailure):
        found.set()

    @app.task(max_attempts=1)
    async def work(): ...

    await store.submit([work.job()])
    await store.claim(worker="gone", queues=["default"], n=1, lease=30)
    worker = Worker(app, source, WorkerConfig(slots=1))
    working = asyncio.create_task(worker.run())
    elapse(31)
    try:
        await asyncio.wait_for(found.wait(), 30)
    finally:
        worker.stop()
        await working


async def test_tasks_of_another_app_are_left_to_its_workers(app, seen, drain, store, elapse):
    @app.task
    async def work(): ...

    await store.submit([work.job()._replace(task="foreign", rules="tries=1")])
    await store.claim(worker="gone", queues=["default"], n=1, lease=30)
    elapse(31)
    await drain(app)
    assert seen == []


# hooks that fail


async def test_a_failing_hook_is_logged_without_its_message_and_changes_nothing(app, drain, client, caplog):
    called = []

    @app.on_failure
    async def breaks(failure: AttemptFailure):
        raise SystemExit("secret")

    @app.on_failure
    def breaks_too(failure: AttemptFailure):
        called.append(failure)
        raise KeyError("secret")

    @app.task(max_attempts=2, backoff=0.01)
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("secret")
        return "done"

    with caplog.at_level(logging.WARNING):
        summary = await drain(app, work.job())
    assert (summary.completed, summary.failed, len(called)) == (1, 1, 1)
    words = [record.getMessage() for record in caplog.records if "failure hook" in record.getMessage()]
    assert len(words) == 2
    assert "breaks raised SystemExit (" in words[0]
    assert "breaks_too raised KeyError (" in words[1]
    assert all("secret" not in line and "task work, job 0-" in line for line in words)


async def test_a_hook_that_does_not_end_is_left_behind(app, drain, caplog, monkeypatch):
    monkeypatch.setattr(failure_hooks, "SECONDS", 0.1)
    go, called = threading.Event(), []

    @app.on_failure
    async def sleeps(failure: AttemptFailure):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if called:
                    raise

    @app.on_failure
    def stuck(failure: AttemptFailure):
        go.wait(60)

    @app.on_failure
    def last(failure: AttemptFailure):
        called.append(failure)

    @app.task(max_attempts=1)
    async def work():
        raise ValueError

    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        await drain(app, work.job())
    go.set()
    assert len(called) == 1
    assert time.monotonic() - began < 30, "the hooks were not awaited for a minute"
    words = " ".join(record.getMessage() for record in caplog.records)
    assert words.count("took longer than 0.1 s") == 2


def test_a_generator_is_no_hook(app):
    with pytest.raises(Invalid, match="on_failure hook: give a plain or async function"):

        @app.on_failure
        def hook(failure):
            yield


async def test_the_snippet_of_the_guide(drain, tmp_path, monkeypatch, caplog):
    (tmp_path / "alerts.py").write_text(blocks("python", GUIDE)[1][1])
    monkeypatch.syspath_prepend(tmp_path)
    import alerts

    try:
        await drain(alerts.app, alerts.fetch.job("a"))
    finally:
        del sys.modules["alerts"]
    assert [record.getMessage()[-37:] for record in caplog.records if record.levelno == logging.ERROR] == [
        "(fetch) is dead: ConnectionResetError"
    ]
