"""Crash, segfault, OOM kill, endless loop, dead-locked thread: the outcome of the job, and the delay until it
is detected.

"At once" is shown by contrast: the lease is five minutes, so an event within the test did not wait for it.
"""

import os
import signal

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.processes import is_alive, on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
OVER_BOTH = pytest.mark.parametrize("through", ["redis", "http"])


@OVER_BOTH
def test_the_jobs_of_a_killed_worker_run_again_on_another(stage):
    first = stage.hire("--slots", "5", "--lease", "1s")
    ids = stage.submit(tasks.rests, n=3) + stage.submit(tasks.plain_rests, n=2)
    stage.until_noted("began", count=5)
    children = {note.pid for note in stage.notes("began")} - {first.pid}
    second = stage.hire("--slots", "5", "--lease", "1s")
    second.until("completed", id=stage.submit(tasks.quick)[0])
    first.kill()
    second.until("completed", count=6)
    until(lambda: not any(map(is_alive, children)), "the end of the children")
    assert len(children) == 2
    for job_id in ids:
        assert stage.codes(job_id) == ["lease_expired", "completed"]
        assert [note.attempt for note in stage.notes("done", job_id)] == [2]
    assert second.stop() == 0
    assert second.seen("summary")[0]["completed"] == 6


def test_a_child_that_dies_is_noticed_at_once(stage):
    """By a segfault, an exit, an abort, or SIGKILL, as the kernel does it when memory is short; a new child takes its place."""
    worker = stage.hire("--slots", "4", "--lease", "300s")
    ways = {
        "segfault": "SIGSEGV",
        "SIGKILL": "SIGKILL",
        "SIGABRT": "SIGABRT",
        "exit": "code 3",
    }
    ids = {how: stage.submit(tasks.dies, how)[0] for how in ways}
    stage.until_ended(*ids.values())
    for how, word in ways.items():
        crashed, completed = stage.job(ids[how]).attempts
        assert (crashed.code, completed.code) == ("crashed", "completed")
        assert word in crashed.message
    began = {note.pid for note in stage.notes("began")}
    assert worker.pid not in began
    assert len(began) > len(ways)
    job = stage.json("get", ids["SIGKILL"])
    assert [attempt["code"] for attempt in job["attempts"]] == ["crashed", "completed"]
    assert "SIGKILL" in job["attempts"][0]["message"]


@pytest.mark.parametrize(
    "task", [tasks.dies_beside_a_fork, tasks.closes_everything], ids=["its fork lives", "it lives"]
)
def test_a_child_is_replaced_when_it_dies_or_closes_its_pipe(stage, task):
    """Its pipe stays open after its death, held by a fork; or is closed while it lives."""
    stage.hire("--slots", "2", "--lease", "300s")
    (job_id,) = stage.submit(task)
    stage.until_ended(job_id)
    assert stage.codes(job_id) == ["crashed", "completed"]
    pids = [note.pid for note in stage.notes("began") + stage.notes("grandchild") if note.attempt == 1]
    until(lambda: not any(map(is_alive, pids)), f"the end of {pids}")


def test_the_death_of_an_idle_child_counts_as_no_attempt(stage):
    stage.hire("--slots", "1", "--processes", "1", "--lease", "300s")
    stage.until_ended(*stage.submit(tasks.plain_quick))
    (idle,) = stage.notes("done")
    os.kill(idle.pid, signal.SIGKILL)
    until(lambda: not is_alive(idle.pid))
    (job_id,) = stage.submit(tasks.plain_quick)
    stage.until_ended(job_id)
    assert stage.codes(job_id) == ["completed"]


def test_a_task_that_uses_too_much_memory_is_stopped_at_the_limit(stage):
    """…and neither its worker nor the next job notices."""
    worker = stage.hire("--slots", "1", "--lease", "300s", "--memory", "256MiB")
    eats, after = stage.submit(tasks.eats, 1024) + stage.submit(tasks.eats, 8)
    stage.until_ended(eats, after)
    assert stage.states(eats, after) == ["dead", "completed"]
    assert stage.codes(eats)[0] in ("crashed", "MemoryError")
    assert worker.process.poll() is None


@pytest.mark.parametrize("task", [tasks.loops, tasks.deadlocks], ids=["endless loop", "dead-locked thread"])
def test_a_stuck_plain_function_is_killed_at_its_timeout(stage, task):
    worker = stage.hire("--slots", "2", "--processes", "1", "--lease", "300s")
    stage.until_ended(*stage.submit(tasks.plain_quick))  # the child is up: its start does not count
    (job_id,) = stage.submit(task)
    (began,) = stage.until_noted("began")
    (failed,) = worker.until("failed", id=job_id)
    assert failed["detail"].startswith("timed_out")
    until(lambda: not is_alive(began.pid), "the end of the child")
    assert stage.codes(job_id) == ["timed_out"]
    stage.until_ended(*stage.submit(tasks.plain_quick))
    assert not stage.notes("never")


def test_other_jobs_continue_beside_a_stuck_one(stage):
    worker = stage.hire("--slots", "3", "--processes", "2", "--lease", "300s")
    (stuck,) = stage.submit(tasks.plain_hangs)
    stage.until_noted("began")
    stage.until_ended(*stage.submit(tasks.quick, n=3), *stage.submit(tasks.plain_quick, n=3))
    assert stage.states(stuck) == ["running"]
    assert worker.hurry() == 0
    assert stage.codes(stuck) == ["released"]


def test_a_stuck_thread_cannot_be_killed_and_its_worker_reports_it(stage):
    worker = stage.hire("--slots", "2", "--lease", "300s", "--grace", "500ms")
    (job_id,) = stage.submit(tasks.stuck_in_a_thread)
    worker.until("failed", id=job_id)
    assert stage.codes(job_id) == ["timed_out"]
    worker.hears("thread", "cannot be")
    stage.until_ended(*stage.submit(tasks.quick))
    assert worker.stop() == 0


def test_stuck_threads_do_not_block_other_jobs(stage):
    """As many stuck threads as slots: a job that is claimed afterwards runs anyway."""
    worker = stage.hire("--slots", "2", "--lease", "300s", "--grace", "500ms")
    for job_id in stage.submit(tasks.stuck_in_a_thread, n=2):
        worker.until("failed", id=job_id)
    stage.until_ended(*stage.submit(tasks.in_a_thread, n=3))


def test_a_task_that_ignores_its_timeout_loses_its_lease(stage):
    """An async task can swallow its cancellation. Then the lease ends it, and its worker can still be stopped."""
    first = stage.hire("--slots", "1", "--lease", "1s", "--grace", "500ms")
    (job_id,) = stage.submit(tasks.swallows)
    stage.until_noted("began")
    second = stage.hire("--slots", "1", "--lease", "1s")
    second.until("completed", id=job_id)
    assert stage.codes(job_id) == ["timed_out", "completed"]
    assert stage.notes("swallowed", job_id)
    first.stop()


@OVER_BOTH
def test_repeatedly_killed_workers_lose_and_repeat_no_outcome(stage):
    """At any moment: between a claim and its answer, or a result and its acknowledgement."""
    ids = []
    for _ in range(10):
        ids += stage.submit(tasks.naps, 0.01, n=20) + stage.submit(tasks.plain_naps, 0.01)
    for i in range(5):
        worker = stage.hire("--slots", "4", "--lease", "1s")
        worker.until("completed", count=1 + 3 * i)
        worker.kill()
    stage.hire("--slots", "20", "--lease", "1s")
    stage.until_ended(*ids)
    assert set(stage.states(*ids)) == {"completed"}
    (stats,) = stage.client.stats()
    assert stats.totals["completed"] == len(ids)
