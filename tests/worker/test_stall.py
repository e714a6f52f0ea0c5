"""`--stall`: a worker that has work and finishes none logs it, releases its jobs, and leaves to be replaced."""

import signal
import time

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
    assert stage.states(*ids) == ["queued"] * 3
    for job_id in ids:
        assert stage.codes(job_id) == ["released"]
        assert stage.job(job_id).tries_left == 3
    stage.until_ended(
        *stage.submit(tasks.quick.options(queue="other"))
    )  # idle for longer than the other had hung
    assert not idle.seen("stalled")
    assert idle.stop() == 0


def test_a_worker_whose_loop_is_blocked_leaves_and_logs_the_task(stage):
    worker = stage.hire(*FLAGS)
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
