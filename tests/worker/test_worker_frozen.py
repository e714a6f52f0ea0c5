"""Blocked loops, starved workers, frozen processes and hosts that come back: late results are refused.

Each time the job runs again elsewhere, one result is accepted, and the late worker is refused and continues
with other work.
"""

import contextlib
import os
import signal

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.processes import is_alive, on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
OVER_BOTH = pytest.mark.parametrize("through", ["redis", "http"])
SHORT = ("--slots", "4", "--lease", "1s")


def proven_able(stage, worker):
    """The worker, now alone, still works: on the loop and in a child."""
    for job_id in stage.submit(tasks.quick) + stage.submit(tasks.plain_quick):
        worker.until("completed", id=job_id)


@pytest.mark.parametrize("then", ["await", "return"])
def test_a_blocked_loop_loses_the_lease_and_its_late_result_is_refused(stage, then):
    """`time.sleep` in an async task: no heartbeat goes out, another worker takes the job. The late result is refused."""
    first = stage.hire(*SHORT)
    (job_id,) = stage.submit(tasks.blocks, stage.go, then)
    stage.until_noted("began")
    second = stage.hire(*SHORT)
    second.until("completed", id=job_id)
    second.stop()
    assert stage.codes(job_id) == ["lease_expired", "completed"]
    assert not first.seen("lost") + first.seen("refused")
    stage.say_go()
    if then == "await":
        first.until("lost", id=job_id)
        assert stage.until_noted("told-True", job_id)
    else:
        until(lambda: first.seen("refused", id=job_id) or first.seen("lost", id=job_id), "the refusal")
    proven_able(stage, first)
    assert stage.codes(job_id) == ["lease_expired", "completed"]
    assert not first.seen("completed", id=job_id)


def test_the_task_that_blocks_the_loop_is_named(stage):
    """Logged while the loop is blocked: afterwards the cause cannot be found."""
    worker = stage.hire(*SHORT)
    (job_id,) = stage.submit(tasks.blocks, stage.go, "return")
    worker.hears("blocks", job_id)
    assert not worker.seen("completed")
    stage.say_go()
    worker.process.kill()


def test_plain_functions_on_every_cpu_lose_no_lease(stage):
    """More of them than there are cores, for longer than three leases."""
    worker = stage.hire("--slots", "9", "--processes", "8", "--lease", "1500ms")
    ids = stage.submit(tasks.hogs, 5, n=8) + stage.submit(tasks.rests, stage.go)
    stage.until_ended(*ids[:8])
    stage.say_go()
    stage.until_ended(ids[8])
    assert {code for job_id in ids for code in stage.codes(job_id)} == {"completed"}
    assert len(worker.seen("completed")) == 9


@OVER_BOTH
def test_a_worker_frozen_for_a_while_is_refused_and_continues(stage, through):
    first = stage.hire(*SHORT)
    ids = stage.submit(tasks.rests) + stage.submit(tasks.plain_rests)
    (child,) = [note.pid for note in stage.until_noted("began", count=2) if note.pid != first.pid]
    first.send(signal.SIGSTOP)
    second = stage.hire(*SHORT)
    for job_id in ids:
        second.until("completed", id=job_id)
    second.stop()
    first.send(signal.SIGCONT)
    for job_id in ids:
        first.until("lost", id=job_id)
        *before, last = stage.codes(job_id)
        assert (set(before), last) == ({"lease_expired"}, "completed")
        assert len(before) <= 2, "a claim that the stopped worker had sent may be given it once more"
    until(lambda: not is_alive(child), "the end of the child that worked for nothing")
    proven_able(stage, first)


def test_a_server_frozen_for_longer_than_a_lease_loses_no_job(private):
    """Outcomes are settled afterwards; each job counts once, and the workers go on."""
    workers = [private.hire(*SHORT, env={"SUBLET_TIMEOUT": "0.3"}) for _ in range(2)]
    ids = private.submit(tasks.rests, private.go, n=4) + private.submit(tasks.plain_rests, private.go, n=2)
    private.until_noted("began", count=6)
    private.signal_server(signal.SIGSTOP)
    try:
        for worker in workers:
            worker.hears("cannot")
        private.say_go()
        private.until_noted("done", count=6)
    finally:
        private.signal_server(signal.SIGCONT)
    private.until_ended(*ids, *private.submit(tasks.quick, n=4), *private.submit(tasks.plain_quick, n=2))
    assert set(private.states(*ids)) == {"completed"}
    (stats,) = private.client.stats()
    assert stats.totals["completed"] == len(ids) + 6


def test_the_results_of_a_host_that_comes_back_are_refused(stage):
    """Worker and children are frozen while the server's clock continues; then all of them finish their jobs."""
    first = stage.hire(*SHORT, "--processes", "2")
    ids = stage.submit(tasks.rests, stage.go, n=2) + stage.submit(tasks.plain_rests, stage.go, n=2)
    stage.until_noted("began", count=4)
    host = [first.pid, *first.children()]
    for pid in host:
        os.kill(pid, signal.SIGSTOP)
    second = stage.hire(*SHORT)
    for job_id in ids:
        second.until("completed", id=job_id)
    second.stop()
    stage.say_go()
    for pid in host:
        with contextlib.suppress(ProcessLookupError):  # a child that had ended already
            os.kill(pid, signal.SIGCONT)
    for job_id in ids:
        until(lambda: first.seen("lost", id=job_id) or first.seen("refused", id=job_id), str(first))  # noqa: B023  # called at once
        assert stage.codes(job_id) == ["lease_expired", "completed"]
    proven_able(stage, first)
    assert first.stop() == 0
    accepted = sum(worker.seen("summary")[0]["completed"] for worker in (first, second))
    assert accepted == len(ids) + 2
    (stats,) = stage.client.stats()
    assert stats.totals["completed"] == accepted
