"""The option `stall`: an attempt that reports no progress is ended as `stalled`. Heartbeats are no progress."""

import asyncio
import sys
import time

import pytest

from sublet.errors import Invalid
from sublet.execution.attempt import Attempt, Why
from sublet.model import Lease
from sublet.options import Options
from sublet.worker import worker as module
from sublet.worker.time_limits.timeouts import BEGIN_SECONDS, Stalls
from tests.support import stall_tasks as tasks
from tests.support.processes import on_linux
from tests.support.program_runs import soon
from tests.support.workers_beside import beside

pytest_plugins = ["tests.support.worker_processes"]
OVER_BOTH = pytest.mark.parametrize("through", ["redis", "http"])


def hire(stage):
    """A worker that sends a heartbeat three times a second."""
    words = ("--slots", "20", "--processes", "2", "--lease", "1s")
    worker = stage.run([sys.executable, "-m", "sublet", "work", "tests.support.stall_tasks:app", *words])
    stage.hired.append(worker)
    return worker


@on_linux
@OVER_BOTH
def test_a_task_without_progress_is_ended_and_costs_a_try(stage):
    hire(stage)
    kinds = (tasks.silent, tasks.plain_silent, tasks.thread_silent, tasks.logs)
    ids = [stage.submit(task)[0] for task in kinds]
    (last,) = stage.submit(tasks.silent.options(max_attempts=1))
    stage.until_ended(*ids, last)
    assert (stage.states(last), stage.codes(last)) == (["dead"], ["stalled"])
    for task, job_id in zip(kinds, ids, strict=True):
        job = stage.job(job_id)
        assert [attempt.code for attempt in job.attempts] == ["stalled", "completed"], task.name
        first = job.attempts[0]
        assert first.message == "no progress for 1 s"
        assert (first.ended_at - first.claimed_at).total_seconds() >= 1
        assert ("Stack when it was ended" in first.detail) == (task.run != "loop"), task.name


@on_linux
@OVER_BOTH
def test_a_task_with_progress_goes_on(stage, through):
    hire(stage)
    ids = [stage.submit(task)[0] for task in (tasks.reports, tasks.plain_reports)]
    ids += stage.submit(tasks.reports, checkpoints=True)
    if through == "redis":  # it submits a job
        ids += stage.submit(tasks.waits, seconds=4.5)
    stage.until_ended(*ids)
    for job_id in ids:
        assert stage.codes(job_id) == ["completed"]


class Run(asyncio.Future):
    begun = True

    def cancel(self, msg=None):
        return super().cancel(msg)


@pytest.fixture
async def attempt():
    lease = Lease("a", "1.x", 1, 0, "q", "t", None, b"{}", "", stall_ms=60_000)
    attempt = Attempt(lease)
    attempt.running = Run()
    return attempt


async def check(stalls, attempt, late=0.0):
    """Check as if the timer had fired, `late` seconds after its time."""
    stalls._timers[attempt].cancel()
    stalls._check(attempt, time.monotonic() - late)


async def test_time_during_which_the_worker_was_stopped_does_not_count(attempt):
    stalls = Stalls()
    stalls.add(attempt)
    attempt.reports.progressed_at -= 70
    await check(stalls, attempt, late=30)
    assert attempt.why is None
    attempt.reports.progressed_at -= 30
    await check(stalls, attempt)
    assert attempt.why is Why.STALLED


async def test_time_before_the_begin_of_the_task_does_not_count(attempt):
    stalls = Stalls()
    stalls.add(attempt)
    attempt.running.begun = False
    attempt.reports.progressed_at -= 70
    await check(stalls, attempt)
    assert attempt.why is None
    assert stalls._timers[attempt].when() <= asyncio.get_running_loop().time() + BEGIN_SECONDS, (
        "the begin is noticed soon"
    )
    stalls.clear()
    assert stalls._timers == {}


async def test_an_attempt_is_watched_until_its_end_or_that_of_its_worker(store, client, app, monkeypatch):
    monkeypatch.setattr(module, "CLEAN_UP", 0.05)
    go, free = asyncio.Event(), asyncio.Event()

    @app.task(stall=60)
    async def waits() -> None:
        await go.wait()

    @app.task(stall=60)
    async def deaf() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(30):
        async with beside(app, store) as worker:
            (one,) = await store.submit([waits.job()])
            await soon(lambda: len(worker._stalls._timers) == 1)
            go.set()
            await client.result(one.id, 30)
            assert worker._stalls._timers == {}
            await store.submit([deaf.job()])
            await soon(lambda: len(worker._stalls._timers) == 1)
        assert worker._stalls._timers == {}
    free.set()


async def test_progress_that_is_not_sent_yet_counts(attempt):
    """As during an outage of Redis."""
    stalls = Stalls()
    stalls.add(attempt)
    attempt.reports.progressed_at -= 70
    attempt.context.progress(0.5)
    await check(stalls, attempt)
    assert attempt.why is None
    stalls.remove(attempt)
    assert stalls._timers == {}


@pytest.mark.parametrize(
    ("stall", "words"),
    [
        (0.5, "stall 0.5 s: use 1 s or more"),
        ("1m", "stall '1m': use a finite number of seconds"),
        (True, "use a finite number"),
    ],
)
def test_a_limit_below_a_second_is_refused(stall, words):
    with pytest.raises(Invalid, match=words):
        Options(stall=stall).rules()


def test_the_rule_is_in_ms():
    assert Options(stall=90).rules() == "stall=90000"
    assert Options().rules() == ""
