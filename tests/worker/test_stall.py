"""`--stall`: a worker that has work and finishes none logs it, releases its jobs, and leaves to be replaced."""

import asyncio
import signal
import time

import pytest

from sublet import App
from sublet.worker import heartbeat
from sublet.worker import worker as module
from sublet.worker.worker import Worker, WorkerConfig
from tests.support import misbehaving_tasks as tasks
from tests.support.processes import on_linux

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


async def test_a_worker_whose_tasks_all_ignore_their_cancellation_leaves(store, monkeypatch):
    monkeypatch.setattr(heartbeat, "CANCEL_AGAIN_AFTER", 0.01)
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(module, "CLEAN_UP", 0.05)
    app, free = App(), asyncio.Event()

    @app.task(timeout=0.05)
    async def deaf() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    reports = []
    worker = Worker(
        app,
        store,
        WorkerConfig(slots=2, lease=0.3),
        lambda event, lease, detail: reports.append((event, detail)),
    )
    await store.submit([deaf.job(), deaf.job()])
    summary = await worker.run()
    free.set()
    assert summary.stalled
    assert (
        "stalled", "2 tasks, as many as there are slots, do not end although they were cancelled"
    ) in reports  # fmt: skip
