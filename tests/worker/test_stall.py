"""`--stall`: a worker that has work and finishes none logs it, releases its jobs, and leaves to be replaced."""

import asyncio
import signal
import threading
import time

import pytest

from sublet import App
from sublet.worker import heartbeat
from sublet.worker import worker as module
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import misbehaving_tasks as tasks
from tests.support.processes import on_linux
from tests.support.program_runs import soon
from tests.support.workers_beside import running

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
FLAGS = ("--slots", "4", "--lease", "300s", "--stall", "1s")


def test_a_worker_whose_tasks_hang_leaves_and_an_idle_one_stays(stage):
    idle = stage.hire(*FLAGS, "--queues", "other")
    worker = stage.hire(*FLAGS)
    ids = stage.submit(tasks.hangs, n=2) + stage.submit(tasks.plain_hangs)
    assert worker.wait() not in (0, None)
    assert len(worker.seen("stalled")) == 1
    assert stage.states(*ids) == ["scheduled"] * 3
    for job_id in ids:
        assert stage.codes(job_id) == ["stalled"]
        assert "no job of its worker ended for 1 s" in stage.job(job_id).attempts[0].message
        assert stage.job(job_id).tries_left == 2
    stage.until_ended(
        *stage.submit(tasks.quick.options(queue="other"))
    )  # idle for longer than the other had hung
    assert not idle.seen("stalled")
    assert idle.stop() == 0


def test_a_job_that_began_meanwhile_is_released(stage):
    """It may not be to blame."""
    worker = stage.hire("--slots", "2", "--lease", "300s", "--stall", "2s")
    (culprit,) = stage.submit(tasks.hangs)
    worker.until("started", id=culprit)
    (other,) = stage.submit(tasks.rests.options(delay=1))
    assert worker.wait() == 1
    assert (stage.codes(culprit), stage.codes(other)) == (["stalled"], ["released"])
    assert stage.job(other).tries_left == 3


@pytest.mark.parametrize("flags", [("--lease", "300s", "--stall", "1s"), ("--lease", "0.2s")])
def test_a_worker_whose_loop_is_blocked_leaves_and_logs_the_task(stage, flags):
    """By default after ten leases."""
    worker = stage.hire("--slots", "4", *flags)
    (job_id,) = stage.submit(tasks.blocks, stage.go)
    assert worker.wait() > 0
    logged = [line for line in worker.words if "stalled" in line]
    assert len(logged) == 1
    assert "blocks" in logged[0]
    assert job_id in logged[0]
    stage.hire(*FLAGS).until("completed", id=job_id)  # its successor here need not wait for the lease


def test_time_during_which_the_machine_slept_is_not_a_stall(stage):
    worker = stage.hire("--slots", "4", "--lease", "300s", "--stall", "2s")
    (job_id,) = stage.submit(tasks.rests, stage.go)
    stage.until_noted("began")
    worker.send(signal.SIGSTOP)
    time.sleep(2.2)  # longer than the stall
    stage.say_go()
    worker.send(signal.SIGCONT)
    worker.until("completed", id=job_id)
    worker.until("completed", id=stage.submit(tasks.quick)[0])
    assert not worker.seen("stalled")


async def test_idle_time_and_the_time_before_the_last_end_are_no_stall(store):
    worker, reports = observed(tasks_that_wait := App(), store, slots=2, stall=60)
    ends = {name: asyncio.Event() for name in ("first", "second")}

    @tasks_that_wait.task
    async def waits(name: str) -> None:
        await ends[name].wait()

    async def begun(n):
        await soon(lambda: len(seen(reports, "started", "stalled")) == n)
        assert not seen(reports, "stalled")
        assert time.monotonic() - worker._progress.since < 60

    worker._progress.since -= 3600
    async with asyncio.timeout(30), running(worker):
        await store.submit([waits.job("first")])
        await begun(1)
        await store.submit([waits.job("second")])
        await begun(2)
        worker._progress.since -= 59
        ends["first"].set()
        await soon(lambda: seen(reports, "completed"))
        assert time.monotonic() - worker._progress.since < 59
        ends["second"].set()
    assert not seen(reports, "stalled")


@pytest.mark.parametrize("kind", ["tasks", "threads"])
async def test_a_worker_leaves_when_all_its_slots_are_taken_by_what_ignores_its_end(store, monkeypatch, kind):
    """With one slot left it goes on."""
    monkeypatch.setattr(heartbeat, "CANCEL_AGAIN_AFTER", 0.01)
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(module, "CLEAN_UP", 0.05)
    app, free, thread_free = App(), asyncio.Event(), threading.Event()

    @app.task(timeout=0.05, max_attempts=1)
    async def deaf() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    @app.task(timeout=0.05, max_attempts=1, run="thread")
    def deaf_thread() -> None:
        thread_free.wait()

    task = deaf if kind == "tasks" else deaf_thread
    worker, reports = observed(app, store, slots=2, lease=0.3)

    async def leaves_after(n):
        """Whether it leaves when so many do not end; the first of two renewals may have begun before."""
        ignoring = [0]
        await store.submit([task.job()])
        while sum(ignoring) < n:
            await asyncio.sleep(0.01)
            ignoring = [one.cancels_ignored >= module.CANCELS_IGNORED for one in worker._attempts]
            ignoring.append(worker._runner.stuck)
        for _ in range(2):
            before = await store.workers()
            while not seen(reports, "stalled") and await store.workers() == before:
                await asyncio.sleep(0.01)
        return bool(seen(reports, "stalled"))

    async with running(worker):
        try:
            async with asyncio.timeout(20):
                assert [await leaves_after(1), await leaves_after(2)] == [False, True]
        finally:
            free.set()
            thread_free.set()
    why = f"2 {kind}, as many as there are slots, do not end although they were cancelled"
    assert seen(reports, "stalled") == [("stalled", why)]


def observed(app, store, **config):
    """A worker, and the list of its reports: event and detail."""
    reports = []
    worker = Worker(
        app,
        store,
        WorkerConfig(grace=0, **config),
        lambda event, lease, detail: reports.append((event, detail)),
    )
    return worker, reports


def seen(reports, *events):
    return [report for report in reports if report[0] in events]
